"""The bodies of MCP requests, measured before anything parses them: the same bounds whether a server answers or the direct endpoint."""

from collections.abc import Iterable, Sequence

import anyio
import anyio.to_thread
import orjson
from mcp_types import INVALID_REQUEST
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from twins.http.arguments import read_body
from twins.http.json_reader import MOST_VALUES, READERS, has_too_many_values
from twins.http.responses import Answer, send_answer
from twins.tool.annotation import BODY_LIMIT
from twins.tool.hang_up import ClientDisconnectedError
from twins.tool.operation import Operation

LONGEST_NUMBER = 15  # How many digits of a Content-Length are read.
JSON = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))


class McpBodies:
    """An ASGI app before an MCP endpoint, which refuses a body that would be costly to parse by 413 and a JSON-RPC error.

    A body holds at most `body_limit` bytes, more only if it calls one of the `operations` whose tool declares more, and at most
    MOST_VALUES values. What nobody may send is refused unread.
    """

    def __init__(self, app: ASGIApp, operations: Iterable[Operation], *, body_limit: int = BODY_LIMIT) -> None:
        self._app = app
        self._limit = body_limit
        self._limits = {each.name: each.body_limit(body_limit) for each in operations}
        self._largest = max([body_limit, *self._limits.values()])
        self._readers = anyio.CapacityLimiter(READERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = _announced(scope) if scope["type"] == "http" and scope["method"] == "POST" else 0
        if length is not None and length <= MOST_VALUES:
            await self._app(scope, receive, send)
            return
        received: list[Message] = []
        try:
            body = None if length is not None and length > self._largest else await read_body(receive, received, limit=self._largest)
        except ClientDisconnectedError:
            return
        refused = too_long(self._largest) if body is None else await self._refusal_of(body)
        if refused is None:
            await self._app(scope, replayed(received, receive), send)
        else:
            await send_answer(send, refused)

    async def _refusal_of(self, body: bytes) -> Answer | None:
        if len(body) <= BODY_LIMIT:
            return self._refusal(body)
        return await anyio.to_thread.run_sync(self._refusal, body, limiter=self._readers)

    def _refusal(self, body: bytes) -> Answer | None:
        if has_too_many_values(body):
            return refusal(f"The body holds more than {MOST_VALUES:,} JSON values; send fewer.")
        if len(body) <= self._limit:
            return None
        limit = self._limits.get(_called_tool(body), self._limit)
        return too_long(limit) if len(body) > limit else None


def too_long(limit: int) -> Answer:
    return refusal(f"The body of this request may have {limit:,} bytes; send less.")


def refusal(message: str) -> Answer:
    """413 with a JSON-RPC error, for a request whose id is not read."""
    error = {"code": INVALID_REQUEST, "message": message}
    return Answer(413, orjson.dumps({"jsonrpc": "2.0", "id": None, "error": error}), JSON)


def _announced(scope: Scope) -> int | None:
    length = dict(scope["headers"]).get(b"content-length", b"")
    return int(length) if length.isdigit() and len(length) <= LONGEST_NUMBER else None


def _called_tool(body: bytes) -> str:
    try:
        name = orjson.loads(body)["params"]["name"]
    except (orjson.JSONDecodeError, KeyError, TypeError, IndexError):
        return ""
    return name if isinstance(name, str) else ""


def replayed(received: Sequence[Message], receive: Receive) -> Receive:
    """ASGI's receive for an app that has read nothing yet."""
    if not received:
        return receive
    waiting = list(reversed(received))

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
