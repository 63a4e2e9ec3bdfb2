"""Sessions of MCP clients of versions with a handshake: how many each caller may keep open, where a building keeps them."""

from dataclasses import dataclass

import anyio
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from campus.addresses import network_of
from campus.http.response import send_problem
from campus.paywall.principal import USER
from campus.shares import Counts
from twins import Problem

IDLE_SECONDS = 1_800.0  # A session without a request for this time is over.
WITH_KEY, PER_KEY = 8_000, 200
WITHOUT_KEY, PER_ADDRESS = 2_000, 50
"""Sessions of all buildings in this process, of all callers with a key, or without one, and of one. Each takes some 40 KB."""
OLD_VERSIONS = ("", *HANDSHAKE_PROTOCOL_VERSIONS)


@dataclass(slots=True)
class OpenSession:
    shares: Counts[str]
    holder: str
    used_at: float


class McpSessions:
    """The open sessions of one process. Those without a key have a room of their own, and take none from those with one."""

    def __init__(self) -> None:
        self._with_key: Counts[str] = Counts(WITH_KEY, PER_KEY)
        self._without_key: Counts[str] = Counts(WITHOUT_KEY, PER_ADDRESS)
        self._open: dict[str, OpenSession] = {}

    def around(self, app: ASGIApp) -> ASGIApp:
        """An MCP server that keeps sessions, in which each caller has its share. It runs where the request's principal is known."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            headers = {name: value.decode("latin-1") for name, value in reversed(scope["headers"])}  # of two the first, as the app reads it
            user = scope.get(USER)
            shares = self._with_key if user else self._without_key
            holder: str = user.access_token.client_id if user else network_of((scope.get("client") or ("",))[0])
            if (known := headers.get(b"mcp-session-id")) is not None:
                session = self._open.get(known)
                is_own = session is not None and session.shares is shares and session.holder == holder
                await app(scope, receive, self._ending(send, known, scope["method"]) if is_own else send)
            elif headers.get(b"mcp-protocol-version", "") not in OLD_VERSIONS:
                await app(scope, receive, send)
            elif shares.has_room(holder) or (self._forget_ended() and shares.has_room(holder)):
                with shares.added(holder):  # until it is known whether this opens one
                    await app(scope, receive, self._opening(send, shares, holder))
            else:
                await send_problem(send, _too_many(), scope.get("request_id"))

        return counted

    def _opening(self, send: Send, shares: Counts[str], holder: str) -> Send:
        async def noted(message: Message) -> None:
            opened = dict(message.get("headers", ())).get(b"mcp-session-id") if message.get("status", 400) < 400 else None
            if opened is not None:
                shares.add(holder)
                self._open[opened.decode("latin-1")] = OpenSession(shares, holder, anyio.current_time())
            await send(message)

        return noted

    def _ending(self, send: Send, session_id: str, method: str) -> Send:
        async def noted(message: Message) -> None:
            status = message.get("status")
            if status == 404 or (method == "DELETE" and status is not None and status < 400):
                self._end(session_id)
            elif (session := self._open.get(session_id)) is not None:
                session.used_at = anyio.current_time()
            await send(message)

        return noted

    def _forget_ended(self) -> bool:
        over = anyio.current_time() - IDLE_SECONDS
        for session_id in [each for each, session in self._open.items() if session.used_at <= over]:
            self._end(session_id)
        return True

    def _end(self, session_id: str) -> None:
        if (session := self._open.pop(session_id, None)) is not None:
            session.shares.remove(session.holder)


def _too_many() -> Problem:
    return Problem(
        429,
        "too_many_sessions",
        f"at most {PER_ADDRESS} sessions are kept without a key for one network address, and {PER_KEY} with one key; end one with DELETE,"
        " or call in the protocol's current version, which needs none",
        headers={"Retry-After": "60"},
    )
