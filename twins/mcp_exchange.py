"""One MCP request in progress: its answer, which becomes an event stream when needed, and the watch for a caller who hangs up."""

import asyncio
import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import anyio
import orjson
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.transport_context import TransportContext
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, RequestParams
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from twins.mcp_messages import McpRequest

JSON_TYPE = (b"content-type", b"application/json")
STREAM = (
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),
)
WATCH_AFTER = 0.25
"""Seconds after which a call is watched: most are over by then, and pay one timer."""
PING_SECONDS = 15.0
"""Seconds of silence after which a comment keeps the stream alive, as in mcp."""
EXCHANGE = "twins.exchange"
"""The scope's key of the exchange, while a call that came over MCP runs without its server."""
logger = logging.getLogger(__name__)


class Exchange:
    """A request and the way back to its caller. To mcp's session it is the DispatchContext of the request.

    The answer is one JSON body until something must be sent before it: a notification of the tool, or a sign of life. From
    then on it is an event stream, which is what versions with a handshake always receive.
    """

    can_send_request = False
    message_metadata = None

    def __init__(self, message: McpRequest, scope: Scope, send: Send, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """`headers` are added to those of the answer."""
        self.message = message
        self.scope = scope
        self.request_id = message.id
        self._send = send
        self._headers = headers
        self._has_begun = False
        self._is_over = False

    @cached_property
    def _turn(self) -> anyio.Lock:
        """Held while something is sent: a tool may send from several tasks."""
        return anyio.Lock()

    @cached_property
    def transport(self) -> TransportContext:
        """What mcp tells handlers about the transport."""
        headers = Headers(scope=self.scope) if self.message.is_modern else None
        return TransportContext(kind="streamable-http", can_send_request=False, headers=headers)

    @cached_property
    def cancel_requested(self) -> anyio.Event:
        """Never set: a caller cancels by closing the connection."""
        return anyio.Event()

    @cached_property
    def session(self) -> ServerSession:
        """A session for this request alone, made when a tool asks for it."""
        meta = self.message.meta
        client = (meta.get(CLIENT_INFO_META_KEY), meta.get(CLIENT_CAPABILITIES_META_KEY)) if self.message.is_modern else (None, None)
        connection = Connection.from_envelope(self.message.version, *client)
        return ServerSession(self, connection, request_meta=self.request_meta)

    @cached_property
    def request_meta(self) -> Any:
        """The request's `_meta` in mcp's form."""
        return RequestParams.model_validate(self.message.params, by_name=False).meta

    async def send_raw_request(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> dict[str, Any]:
        """Raises mcp's error: without a session nothing can be asked of the client."""
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:
        """Send a notification before the answer. After the answer it is dropped."""
        members = {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": dict(params)})
        await self._stream(b"event: message\r\ndata: %b\r\n\r\n" % _json(members))

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send the tool's progress, if the request named a token for it."""
        token = self.message.meta.get("progressToken")
        if token is not None:
            members = {"progressToken": token, "progress": progress, "total": total, "message": message}
            await self.notify("notifications/progress", {name: value for name, value in members.items() if value is not None})

    async def ping(self) -> None:
        """Send a comment, which clients ignore and proxies take for life."""
        await self._stream(b": ping\r\n\r\n")

    async def finish(self, member: bytes, value: bytes, *, status: int = 200) -> None:
        """Send the answer: `member` is result or error. Only one JSON body can have another status than 200."""
        data = b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (orjson.dumps(self.message.id), member, value)
        if self._has_begun:
            async with self._turn:
                self._is_over = True
                await self._send({"type": "http.response.body", "body": b"event: message\r\ndata: %b\r\n\r\n" % data})
            return
        self._has_begun = self._is_over = True
        kind: tuple[tuple[bytes, bytes], ...] = (JSON_TYPE,)
        if not self.message.is_modern:
            data, kind, status = b"event: message\r\ndata: %b\r\n\r\n" % data, STREAM, 200
        headers = [*kind, *self._headers, (b"content-length", b"%d" % len(data))]
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
                data = b"event: message\r\ndata: %b\r\n\r\n" % message.get("body", b"")
                await self._send({**message, "body": data})
            else:
                await self._send(message)

        return send

    async def _stream(self, data: bytes) -> None:
        async with self._turn:
            if self._is_over:
                return
            if not self._has_begun:
                self._has_begun = True
                await self._send({"type": "http.response.start", "status": 200, "headers": [*STREAM, *self._headers]})
            await self._send({"type": "http.response.body", "body": data, "more_body": True})


class HangUpWatch:
    """Cancels a call when its caller hangs up, and keeps its stream alive. A call that is over soon pays for a timer only."""

    __slots__ = ("_call", "_exchange", "_ping_seconds", "_receive", "_task", "_timer")

    def __init__(self, exchange: Exchange, receive: Receive, call: anyio.CancelScope, *, ping_seconds: float) -> None:
        self._exchange = exchange
        self._receive = receive
        self._call = call
        self._ping_seconds = ping_seconds
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER, self._begin)

    def stop(self) -> None:
        """The call is over."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        # a task group would cost each call more than the rest of the watch, and most calls never need the task
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        try:
            if not self._exchange.message.is_modern:
                await self._exchange.ping()  # mcp begins this version's streams at once
            while True:
                with anyio.move_on_after(self._ping_seconds):
                    if (await self._receive())["type"] == "http.disconnect":
                        self._call.cancel()
                        return
                    continue
                await self._exchange.ping()
        except Exception:  # whatever the server raises here means that nobody can be answered
            logger.debug("the connection of a call failed", exc_info=True)
            self._call.cancel()


def _json(members: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(members)
    except TypeError:  # an integer beyond 64 bits
        return to_json(members)
