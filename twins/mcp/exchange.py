"""One MCP request in progress: its answer, which becomes an event stream when needed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import anyio
import orjson
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.transport_context import TransportContext
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, RequestParams
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from twins.mcp.messages import McpRequest
from twins.tool.hang_up import HangUpWatch, WaitingCaller
from twins.tool.results import json_of

JSON_TYPE = (b"content-type", b"application/json")
STREAM = (
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),
)
PING_SECONDS = 15.0  # Seconds of silence after which a comment keeps the stream alive, as in mcp.
EXCHANGE = "twins.exchange"  # The scope's key of the exchange, while a call that came over MCP runs without its server.
RESULT, ERROR = b',"result":', b',"error":'
EVENT, END_OF_EVENT = b"event: message\r\ndata: ", b"\r\n\r\n"


class Exchange(WaitingCaller):
    """A request and the way back to its caller. To mcp's session it is the DispatchContext of the request.

    The answer is one JSON body until something must be sent before it: a notification of the tool, or a sign of life. From
    then on it is an event stream, which is what versions with a handshake always receive.
    """

    can_send_request = False
    message_metadata = None

    def __init__(
        self,
        message: McpRequest,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        """`headers` are added to those of the answer. After `ping_seconds` of silence something is sent."""
        self.message = message
        self.scope = scope
        self.receive = receive
        self.ping_seconds = ping_seconds
        self.pings_at_once = not message.is_modern  # mcp begins that version's streams at once
        self.request_id = message.id
        self._send = send
        self._headers = headers
        self._turn: anyio.Lock | None = None
        """Held while something is sent on the stream: a tool may send from several tasks."""
        self._has_begun = False
        self._is_over = False

    @cached_property
    def transport(self) -> TransportContext:
        headers = Headers(scope=self.scope) if self.message.is_modern else None
        return TransportContext(kind="streamable-http", can_send_request=False, headers=headers)

    @cached_property
    def cancel_requested(self) -> anyio.Event:
        """Never set: a caller cancels by closing the connection."""
        return anyio.Event()

    @cached_property
    def session(self) -> ServerSession:
        meta = self.message.meta
        client = (meta.get(CLIENT_INFO_META_KEY), meta.get(CLIENT_CAPABILITIES_META_KEY)) if self.message.is_modern else (None, None)
        connection = Connection.from_envelope(self.message.version, *client)
        return ServerSession(self, connection, request_meta=self.request_meta)

    @cached_property
    def request_meta(self) -> Any:
        return RequestParams.model_validate(self.message.params, by_name=False).meta

    async def send_raw_request(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> dict[str, Any]:
        """Raises mcp's error: without a session nothing can be asked of the client."""
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:
        """Send a notification before the answer. After the answer it is dropped."""
        members = {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": dict(params)})
        await self._stream(b"".join((EVENT, json_of(members), END_OF_EVENT)))

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        token = self.message.meta.get("progressToken")
        if token is not None:
            members = {"progressToken": token, "progress": progress, "total": total, "message": message}
            await self.notify("notifications/progress", {name: value for name, value in members.items() if value is not None})

    async def ping(self) -> None:
        """Send a comment, which clients ignore and proxies take for life."""
        await self._stream(b": ping\r\n\r\n")

    async def finish(self, member: bytes, value: Sequence[bytes], *, status: int = 200) -> None:
        """Send the answer: `member` is RESULT or ERROR, `value` is in parts, so that a long one is copied once only.

        Only one JSON body can have another status than 200.
        """
        parts: tuple[bytes, ...] = (b'{"jsonrpc":"2.0","id":', orjson.dumps(self.message.id), member, *value, b"}")
        if self._turn is not None:
            async with self._turn:
                if self._has_begun:
                    self._is_over = True
                    await self._send({"type": "http.response.body", "body": b"".join((EVENT, *parts, END_OF_EVENT))})
                    return
        self._has_begun = self._is_over = True
        kind: tuple[tuple[bytes, bytes], ...] = (JSON_TYPE,)
        if not self.message.is_modern:
            kind = STREAM
            status = 200
            parts = (EVENT, *parts, END_OF_EVENT)
        data = b"".join(parts)
        headers = (*kind, *self._headers, (b"content-length", b"%d" % len(data)))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": data})

    def continued(self) -> Send:
        """A `send` for an app that answers after all: as it is, or as the end of the stream if that has begun."""
        if not self._has_begun:
            return self._send
        self._is_over = True
        is_json = True

        async def send(message: Message) -> None:
            nonlocal is_json
            if message["type"] == "http.response.start":
                is_json = JSON_TYPE in [tuple(header) for header in message["headers"]]
            elif is_json:
                await self._send({**message, "body": b"".join((EVENT, message.get("body", b""), END_OF_EVENT))})
            else:
                await self._send(message)

        return send

    async def _stream(self, data: bytes) -> None:
        if self._turn is None:
            self._turn = anyio.Lock()
        async with self._turn:
            if self._is_over:
                return
            if not self._has_begun:
                await self._send({"type": "http.response.start", "status": 200, "headers": (*STREAM, *self._headers)})
                self._has_begun = True
            await self._send({"type": "http.response.body", "body": data, "more_body": True})


@contextmanager
def kept_alive(scope: Scope) -> Iterator[None]:
    """While the body waits, such as for a settlement, the stream of a direct call is kept alive. If the caller hangs up, only a tool
    that runs in the body is cancelled. Does nothing in a call that the server answers."""
    exchange: Exchange | None = scope.get(EXCHANGE)
    if exchange is None:
        yield
        return
    watch = exchange.watch = HangUpWatch(exchange, None)
    try:
        yield
    finally:
        exchange.watch = None
        watch.stop()
