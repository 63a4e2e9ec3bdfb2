"""Baseline of the lists: hand-written Starlette routes without a paywall. `bare_starlette PORT FOLDER` serves FOLDER/*.json.

/<name> encodes the data with orjson each time, /<name>/bytes sends bytes that were encoded before.
"""

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


def sending(body: bytes) -> Endpoint:
    """An endpoint that sends the same bytes each time."""

    async def answer(request: Request) -> Response:
        return Response(body, media_type="application/json")

    return answer


def app(folder: Path) -> Starlette:
    """Two routes for each document, under its name."""
    documents = {path.stem: path.read_bytes() for path in sorted(folder.glob("*.json"))} | {"healthz": b'{"ok":true}'}
    encoding = [Route(f"/{name}", answering(orjson.loads(body))) for name, body in documents.items()]
    return Starlette(routes=[*encoding, *(Route(f"/{name}/bytes", sending(body)) for name, body in documents.items())])


if __name__ == "__main__":
    listen(app(Path(sys.argv[2])), port=int(sys.argv[1]))
