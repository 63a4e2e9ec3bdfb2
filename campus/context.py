"""What campus knows of one request, under one key of its scope: the edge, the gates and the pages write it, and read what others wrote."""

from dataclasses import dataclass
from typing import Any

from starlette.types import Scope

from campus.caller import Caller, Credential
from twins import Problem

CONTEXT = "campus.context"


@dataclass(slots=True)
class Context:
    """One request. Each attribute is unset until it is known."""

    route: str | None = None
    """The template of the route that answers, or `building:tool` over MCP: for the log and the metrics, since a path may hold a secret."""
    status: int | None = None
    """The status of a problem that is a tool's result over MCP, for the metrics."""
    arrived_bytes: int = 0
    """How much of the body has arrived with the head."""
    site: Any = None
    """The Site of the building that answers."""
    caller: Caller | None = None
    """The caller of the outermost tool, once it is admitted: calls inside that one are not checked again."""
    credential: Credential | None = None
    """That of a page's visitor, under which the page may call tools; of a connected client, whose access token is no key; and of a call."""
    is_connected: bool = False
    """The request of a connected client: it cannot pay, and its refusals say nothing of headers."""
    is_personal: bool = False
    """The page depends on who asked for it, so that no cache may keep it."""
    is_counted: bool = False
    """The call was counted for the limits of its caller: it may pass the gate again, and is not counted again."""
    paid: int | None = None
    """What the call cost its payer, in the token's smallest unit, once it is charged."""
    used_up: Problem | None = None
    """The refusal of a call whose key has spent its quota: it may pass the gate again, and its key does not open it then either."""
    limits: tuple[tuple[bytes, bytes], ...] = ()
    """The response's headers that say how many calls are left."""


def context_of(scope: Scope) -> Context:
    """The context of the request; a new one if nothing is known yet."""
    found: Context | None = scope.get(CONTEXT)
    if found is None:
        found = scope[CONTEXT] = Context()
    return found
