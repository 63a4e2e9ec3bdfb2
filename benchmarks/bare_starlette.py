"""Baseline of the lists: hand-written Starlette routes, orjson, no paywall. `bare_starlette PORT FOLDER` serves FOLDER/*.json."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.baseline_server import listen

Endpoint = Callable[[Request], Awaitable[Response]]


class OrjsonResponse(Response):
    """JSON, serialized by orjson."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes."""
        return orjson.dumps(content)


def answering(content: Any) -> Endpoint:
    """An endpoint that returns the same data each time."""

    async def answer(request: Request) -> Response:
        return OrjsonResponse(content)

    return answer


def app(folder: Path) -> Starlette:
    """One route for each document, under its name."""
    documents = {path.stem: orjson.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))}
    documents["healthz"] = {"ok": True}
    return Starlette(routes=[Route(f"/{name}", answering(content)) for name, content in documents.items()])


if __name__ == "__main__":
    listen(app(Path(sys.argv[2])), port=int(sys.argv[1]))
