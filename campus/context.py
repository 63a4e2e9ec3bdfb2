"""What campus knows of one request, under one key of its scope: the edge, the gates and the pages write it, and read what others wrote."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from starlette.types import Scope

from campus.caller import Caller, Credential
from twins import Problem

CONTEXT = "campus.context"
T = TypeVar("T")


@dataclass(slots=True)
class Context:
    """One request. Each attribute is unset until it is known."""

    route: str | None = None
    """The template of the route that answers, or `building:tool` over MCP: for the log and the metrics, since a path may hold a secret."""
    status: int | None = None  # The status of a problem that is a tool's result over MCP, for the metrics.
    arrived_bytes: int = 0  # How much of the body has arrived with the head.
    allow_body: Callable[[int], None] | None = None  # Raises the bytes that the body may have, before it is read.
    site: Any = None  # The Site of the building that answers.
    caller: Caller | None = None
    """The caller of the outermost tool, once it is admitted: calls inside that one are not checked again."""
    credential: Credential | None = None
    """That of a page's visitor, under which the page may call tools; of a connected client, whose access token is no key; and of a call."""
    is_delegated: bool = False
    """The request of a program that calls with the key of somebody else: it cannot pay, and its refusals say nothing of headers."""
    is_personal: bool = False
    """The page depends on who asked for it, so that no cache may keep it."""
    is_counted: bool = False
    """The call was counted for the limits of its caller: it may pass the gate again, and is not counted again."""
    refusal: Problem | None = None
    """That of a step, for the call's key: the call may pass the gate again, and its key does not open it then either."""
    rates: tuple[tuple[bytes, bytes], ...] = ()  # The response\'s headers that say how many calls are left.
    headers: tuple[tuple[bytes, bytes], ...] = ()  # Those that steps add to the response.
    added: Mapping[str, Any] = field(default_factory=dict)  # What steps added to the `_meta` of the call's result over MCP.
    slots: "dict[Slot[Any], Any] | None" = None  # What features note of the call; see Slot.

    def apart(self) -> "Context":
        """That of another call of the same request, by the same caller."""
        return replace(self, caller=None, is_counted=False, refusal=None, added={}, slots=None)


class Slot(Generic[T]):
    """A feature's own value in a call's context: `PAID = Slot[int]()`, then `PAID.note(context, 20)` and `PAID.of(context)`."""

    __slots__ = ()

    def of(self, context: Context) -> T | None:
        return None if context.slots is None else context.slots.get(self)

    def note(self, context: Context, value: T) -> None:
        if context.slots is None:
            context.slots = {}
        context.slots[self] = value


def context_of(scope: Scope) -> Context:
    """The context of the request; a new one if nothing is known yet."""
    found: Context | None = scope.get(CONTEXT)
    if found is None:
        found = scope[CONTEXT] = Context()
    return found
