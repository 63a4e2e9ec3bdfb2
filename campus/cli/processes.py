"""A process that serves on its parent's socket: the parent reads its reports, and has it finish its calls and end.

The two sides are connected by a pair of sockets. The child ends when the parent closes its own, also because the parent was killed.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

import anyio
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

STOP_SECONDS = 20.0
"""The server lets calls finish for 10 s, then a job's process has 5."""
LONGEST_REPORT = 1 << 20


def own_group(*words: str) -> Sequence[str]:
    """`campus …` in a process group of its own: an interrupt from the keyboard reaches it through its parent only."""
    code = "import os; os.setpgid(0, 0); from campus.__main__ import main; main()"
    return (sys.executable, "-P", "-c", code, *words)


class ServingProcess:
    """The parent's side."""

    def __init__(self, reports: UNIXSocketStream, pid: int = 0) -> None:
        self._reports = reports
        self._lines = BufferedByteReceiveStream(reports)
        self._has_ended = False
        self._reading = anyio.Lock()
        self.pid = pid

    async def report(self) -> dict[str, Any] | None:
        """The next thing that it tells: `served`, what is served where, or `error`, why nothing is. None when it has ended."""
        try:
            report: dict[str, Any] = json.loads(await self._lines.receive_until(b"\n", LONGEST_REPORT))
        except (anyio.BrokenResourceError, anyio.IncompleteRead):
            self._has_ended = True
            return None
        return report

    async def ended(self) -> None:
        async with self._reading:
            while not self._has_ended and await self.report():
                pass

    async def stop(self) -> None:
        """Let its running calls finish, and end it."""
        with suppress(anyio.BrokenResourceError, OSError):
            await self._reports.send_eof()
        with anyio.move_on_after(STOP_SECONDS):
            await self.ended()
            return
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def send_report(reports: socket.socket, report: Mapping[str, Any]) -> None:
    reports.sendall(json.dumps(report).encode() + b"\n")


def stop_with_parent(reports: socket.socket) -> None:
    """Have this process end as by SIGTERM when the parent wants that, or has ended."""
    Thread(target=_await_end, args=(reports,), daemon=True).start()


def _await_end(reports: socket.socket) -> None:
    reports.recv(1)  # nothing is ever sent: this returns when the parent's socket is closed
    os.kill(os.getpid(), signal.SIGTERM)
