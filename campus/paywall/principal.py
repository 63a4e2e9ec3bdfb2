"""A caller's key as FastMCP's principal: what get_access_token(), UserSession and the auth= of an author's components see of it."""

from collections.abc import Sequence
from contextvars import Token
from functools import lru_cache

from fastmcp.server.auth import AccessToken
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.caller import Credential, Key
from campus.errors import StorageUnavailable
from campus.paywall.admission import ALL, CACHED_CALLERS, Paywall

USER = "user"  # Where Starlette and FastMCP keep who sent a request, in its scope.


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


def enter(credential: Credential | None, scope: Scope, scopes: tuple[str, ...]) -> Token[AuthenticatedUser | None] | None:
    """Make the holder of this credential the principal of a call, if it is a valid key of the building, and nobody otherwise.

    Returns what `leave` needs after the call. Not a context manager: that would take a tenth of a small call.
    """
    user = user_of(credential, scopes)
    if user is None and USER not in scope:
        return None
    scope[USER] = user
    return auth_context_var.set(user)


def leave(entered: Token[AuthenticatedUser | None] | None) -> None:
    if entered is not None:
        auth_context_var.reset(entered)


def user_of(credential: Credential | None, scopes: tuple[str, ...]) -> AuthenticatedUser | None:
    if credential is None or credential.state != "valid" or (key := credential.key) is None:
        return None
    return principal_of(key, credential.client, scopes) if key.scope in scopes or key.scope == ALL else None


class Principals:
    """An ASGI app before a building's MCP server: what the server answers itself, such as lists, is asked for by the request's key."""

    def __init__(self, app: ASGIApp, paywall: Paywall, scopes: Sequence[str]) -> None:
        self._app = app
        self._paywall = paywall
        self._scopes = tuple(scopes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        entered = enter(await self._credential(scope) if scope["type"] == "http" else None, scope, self._scopes)
        try:
            await self._app(scope, receive, send)
        finally:
            leave(entered)

    async def _credential(self, scope: Scope) -> Credential | None:
        try:
            return self._paywall.peek(scope) or await self._paywall.find(scope)
        except StorageUnavailable:  # a call is refused by the gate, with its reason
            return None
