"""A caller's key as FastMCP's principal: what get_access_token(), UserSession and the auth= of an author's components see of it."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache

from fastmcp.server.auth import AccessToken
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.caller import Credential, Key
from campus.errors import StorageUnavailable
from campus.paywall.admission import ALL, CACHED_CALLERS, Paywall

USER = "user"
"""Where Starlette and FastMCP keep who sent a request, in its scope."""
NOBODY = nullcontext()


@lru_cache(maxsize=CACHED_CALLERS)
def principal_of(key: Key, client: str | None, scopes: tuple[str, ...]) -> AuthenticatedUser:
    """The principal of a key for a building whose tools need `scopes`. It is the key's lineage, which a rotation keeps.

    `token` is the key's id: the secret that the caller sends stays with campus. A key of scope `all` has the building's scopes too.
    """
    claims = {"key": key.id, "product": key.product} | ({"client": client} if client else {})
    held = [ALL, *scopes] if key.scope == ALL else [key.scope]
    ends = int(key.expires_at.timestamp())
    token = AccessToken(token=key.id, client_id=key.lineage, subject=key.lineage, scopes=held, expires_at=ends, claims=claims)
    return AuthenticatedUser(token)


def calling_as(credential: Credential | None, scope: Scope, scopes: tuple[str, ...]) -> AbstractContextManager[None]:
    """While a call runs, its principal is the holder of this credential, if it is a valid key of the building; nobody otherwise."""
    user = user_of(credential, scopes)
    return NOBODY if user is None and USER not in scope else _requested_by(user, scope)


def user_of(credential: Credential | None, scopes: tuple[str, ...]) -> AuthenticatedUser | None:
    """The principal that a credential stands for, where tools need `scopes`; None if it is not valid here."""
    if credential is None or credential.key is None or credential.state != "valid" or credential.key.scope not in (ALL, *scopes):
        return None
    return principal_of(credential.key, credential.client, scopes)


@contextmanager
def _requested_by(user: AuthenticatedUser | None, scope: Scope) -> Iterator[None]:
    scope[USER] = user
    entered = auth_context_var.set(user)
    try:
        yield
    finally:
        auth_context_var.reset(entered)


class Principals:
    """An ASGI app before a building's MCP server: what the server answers itself, such as lists, is asked for by the request's key."""

    def __init__(self, app: ASGIApp, paywall: Paywall, scopes: Sequence[str]) -> None:
        self._app = app
        self._paywall = paywall
        self._scopes = tuple(scopes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        user = await self._user_of(scope) if scope["type"] == "http" else None
        if user is None:
            await self._app(scope, receive, send)
            return
        with _requested_by(user, scope):
            await self._app(scope, receive, send)

    async def _user_of(self, scope: Scope) -> AuthenticatedUser | None:
        try:
            return user_of(self._paywall.peek(scope) or await self._paywall.find(scope), self._scopes)
        except StorageUnavailable:  # a call is refused by the gate, with its reason
            return None
