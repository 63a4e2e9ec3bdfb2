"""A recorder that is served on a port of this machine, which notes what arrives; and how tests run programs against it."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import NamedTuple

import anyio
from patience import patience
from recorder.recorders import Recorder
from starlette.types import Message, Receive, Scope, Send

from campus.http.server import bind, serve


class Heard(NamedTuple):
    """One request that arrived."""

    method: str
    path: str
    query: str
    body: bytes


@asynccontextmanager
async def served(recorder: Recorder) -> AsyncIterator[tuple[str, list[Heard]]]:
    """The address of the served campus, and the requests that arrive."""
    heard: list[Heard] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        parts: list[bytes] = []

        async def listened() -> Message:
            parts.append((message := await receive()).get("body", b""))
            return message

        await recorder.campus.app(scope, listened, send)
        heard.append(Heard(scope["method"], scope["path"], scope["query_string"].decode(), b"".join(parts)))

    listener = bind("127.0.0.1", 0)
    started = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve(app, listener, on_started=started.set, takes_signals=False, grace_seconds=2))
        await started.wait()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
        tasks.cancel_scope.cancel()


async def run(*words: str, cwd: Path | None = None, said: bytes = b"", **environ: str) -> CompletedProcess[bytes]:
    surroundings = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environ}
    with anyio.fail_after(patience(60)):
        return await anyio.run_process(words, input=said, check=False, env=surroundings, cwd=cwd)
