"""What identifies a request in the log and in its response: its request id, the caller's address, the caller's trace, the route."""

import re
from collections.abc import Callable
from random import Random

from starlette.types import Scope

SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
LOGGED_SEGMENTS = 2


def random_ids() -> Callable[[], str]:
    """A source of request ids: 24 hex digits each. They are names, not secrets, so a fast generator is enough."""
    bits = Random().getrandbits  # noqa: S311 - see above

    def new_id() -> str:
        return bits(96).to_bytes(12).hex()

    return new_id


def request_id_of(sent: bytes | None, new_id: Callable[[], str]) -> str:
    """The caller's X-Request-Id when it is safe to repeat, else a new one."""
    if sent is not None and SAFE_ID.fullmatch(sent):
        return sent.decode("ascii")
    return new_id()


def trace_id_of(traceparent: bytes | None) -> str | None:
    """The trace that a W3C traceparent header names; None without a well-formed one."""
    found = TRACEPARENT.fullmatch(traceparent or b"")
    return found[1].decode("ascii") if found else None


def caller_of(client: tuple[str, int] | None) -> str:
    """The caller's address for the log; `-` where the server does not know it."""
    return client[0] if client else "-"


def route_of(scope: Scope) -> str | None:
    """The template of the route that answered: a twin's, a page's, an MCP endpoint's, or `building:tool` over MCP."""
    route: str | None = scope.get("campus.route") or getattr(scope.get("route"), "path", None)
    return route


def loggable_route_of(scope: Scope) -> str:
    """The route's template, else the first segments of the path: the rest of a path may hold a secret."""
    return route_of(scope) or "/".join(scope["path"].split("/")[: LOGGED_SEGMENTS + 1])
