"""Sessions of MCP clients of versions with a handshake: how many each caller may keep open, where a building keeps them."""

from collections.abc import Callable
from dataclasses import dataclass

import anyio
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from campus.addresses import network_of
from campus.http.response import send_problem
from campus.paywall.principal import USER
from campus.shares import Counts
from twins import Problem

IDLE_SECONDS = 1_800.0
"""A session without a request for this time is over."""
WITH_KEY, PER_KEY = 8_000, 200
WITHOUT_KEY, PER_ADDRESS = 2_000, 50
"""Sessions of all buildings in this process: of all callers with a key, or without one, and of one. Each takes some 40 KB."""
SESSION_ID, VERSION = b"mcp-session-id", b"mcp-protocol-version"


@dataclass(slots=True)
class OpenSession:
    """A session, the shares that it takes from, and the requests that run in it."""

    shares: Counts[str]
    holder: str
    running: int = 1
    idle_since: float = 0.0


class McpSessions:
    """The open sessions of one process. Those without a key have a room of their own, and take none of those with one."""

    def __init__(self) -> None:
        self._with_key: Counts[str] = Counts(WITH_KEY, PER_KEY)
        self._without_key: Counts[str] = Counts(WITHOUT_KEY, PER_ADDRESS)
        self._open: dict[str, OpenSession] = {}

    def around(self, app: ASGIApp) -> ASGIApp:
        """An MCP server that keeps sessions, in which each caller has its share. The request's principal is known."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            headers = dict(scope.get("headers", ()))
            if (sent := headers.get(SESSION_ID)) is not None:
                await self._continue(sent.decode("latin-1"), app, scope, receive, send)
            elif scope["type"] == "http" and headers.get(VERSION, b"").decode("latin-1") in ("", *HANDSHAKE_PROTOCOL_VERSIONS):
                await self._begin(app, scope, receive, send)
            else:
                await app(scope, receive, send)

        return counted

    async def _begin(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        shares, holder = self._shares_of(scope)
        if not shares.has_room(holder):
            self._forget_ended()
        if not shares.has_room(holder):
            await send_problem(send, _too_many(), scope.get("request_id"))
            return
        shares.add(holder)
        session = OpenSession(shares, holder)
        opened: list[str] = []

        def began(message: Message) -> None:
            if message["status"] < 400 and (found := dict(message.get("headers", ())).get(SESSION_ID)) is not None:
                opened.append(found.decode("latin-1"))
                self._open[opened[0]] = session

        try:
            await app(scope, receive, _noting(send, began))
        finally:
            self._rest(session)
            if not opened:
                shares.remove(holder)

    async def _continue(self, session_id: str, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        session = self._open.get(session_id)
        shares, holder = self._shares_of(scope)
        if session is None or session.shares is not shares or session.holder != holder:  # the server says that there is none
            await app(scope, receive, send)
            return
        is_over = False

        def began(message: Message) -> None:
            nonlocal is_over
            is_over = message["status"] == 404 or (scope["method"] == "DELETE" and message["status"] < 400)

        session.running += 1
        try:
            await app(scope, receive, _noting(send, began))
        finally:
            self._rest(session)
            if is_over:
                self._end(session_id)

    def _shares_of(self, scope: Scope) -> tuple[Counts[str], str]:
        if (user := scope.get(USER)) is not None:
            return self._with_key, user.access_token.client_id
        return self._without_key, network_of((scope.get("client") or ("",))[0])

    def _forget_ended(self) -> None:
        over = anyio.current_time() - IDLE_SECONDS
        for session_id in [each for each, session in self._open.items() if not session.running and session.idle_since <= over]:
            self._end(session_id)

    def _end(self, session_id: str) -> None:
        if (session := self._open.pop(session_id, None)) is not None:
            session.shares.remove(session.holder)

    @staticmethod
    def _rest(session: OpenSession) -> None:
        session.running -= 1
        session.idle_since = anyio.current_time()


def _noting(send: Send, began: Callable[[Message], None]) -> Send:
    async def noted(message: Message) -> None:
        if message["type"] == "http.response.start":
            began(message)
        await send(message)

    return noted


def _too_many() -> Problem:
    return Problem(
        429,
        "too_many_sessions",
        f"at most {PER_ADDRESS} sessions are kept without a key for one network address, and {PER_KEY} with one key; end one with DELETE,"
        " or call in the protocol's current version, which needs none",
        headers={"Retry-After": "60"},
    )
