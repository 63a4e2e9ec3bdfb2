"""The gate's reader and writer over HTTP: receipts in headers, bought answers as responses."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from campus.caller import Frame
from campus.idempotency_keys import idempotency_key_in
from campus.paywall.gate import Gate
from campus.pricing import Offer
from campus.steps import Receipt
from twins import QUERY_METHODS, Answer, Call, json_answer
from twins import Gate as HttpGate


class GatedHttpCall:
    """One call over HTTP, for the gate."""

    frame: Frame = "http"

    __slots__ = ("_call", "route", "scope", "tool")

    def __init__(self, call: Call) -> None:
        """See GatedCall for the attributes and for what follows."""
        self._call = call
        self.scope = call.scope
        self.tool = call.operation.name
        self.route = call.operation.path

    @property
    def method(self) -> str:
        method: str = self._call.scope["method"]
        return "GET" if method == "HEAD" else method

    def run(self) -> Awaitable[Answer]:
        return self._call.answer()

    def body_of(self, result: Answer) -> bytes | None:
        return result.body

    def noted(self, result: Answer, key_ignored: str) -> Answer:
        notice = f'299 campus "{key_ignored}: the key was ignored, since this tool is free"'
        return result.adding({"Warning": notice, "Vary": "Authorization"})

    @property
    def meta(self) -> None:
        return None

    def sent(self) -> Awaitable[dict[str, Any] | None]:
        return self._call.sent()

    def canonical(self) -> Awaitable[dict[str, Any]]:
        return self._call.canonical()

    def is_quoted(self, offer: Offer) -> bool:
        """A body is worth reading only if it sets the price, or may ask for what was bought before."""
        return self.method in QUERY_METHODS or offer.access.sells is not None or idempotency_key_in(self.scope) is not None

    def idempotency_key(self, sent: Mapping[str, Any] | None) -> str | None:
        return idempotency_key_in(self.scope, sent)

    def waiting(self) -> AbstractContextManager[None]:
        """What is paid for goes on when its caller hangs up: the answer is stored, and the same payment fetches it."""
        self._call.runs_to_end = True
        return nullcontext()

    def delivered(self, body: bytes, receipt: Receipt, made: Answer | None) -> Answer:
        return json_answer(body, status=self._call.operation.status).adding(receipt.headers)


def http_gate(gate: Gate, as_task: Callable[[GatedHttpCall], Awaitable[Answer | None]] | None = None) -> HttpGate:
    """The gate as the package twins asks it. `as_task` answers the calls that run as tasks."""
    if as_task is None:
        return lambda call: gate.passed(GatedHttpCall(call))

    async def passed(call: Call) -> Answer:
        gated = GatedHttpCall(call)
        answer = await as_task(gated)
        return await gate.passed(gated) if answer is None else answer

    return passed
