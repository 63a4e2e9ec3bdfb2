"""The gate's reader and writer over HTTP: calls from requests, stored answers as responses."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from campus.caller import Frame
from campus.config import LARGEST_WHOLE_BODY
from campus.context import context_of
from campus.paywall.gate import Gate
from campus.steps import Answered
from twins import Answer, Call, json_answer
from twins import Gate as HttpGate


class GatedHttpCall:
    frame: Frame = "http"

    __slots__ = ("_call", "route", "scope", "tool")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.scope = call.scope
        self.tool = call.operation.name
        self.route = call.operation.path

    @property
    def method(self) -> str:
        method: str = self._call.scope["method"]
        return "GET" if method == "HEAD" else method

    def run(self) -> Awaitable[Answer]:
        self._allow_whole_body()
        return self._call.answer()

    def _allow_whole_body(self) -> None:
        """Let a caller whose key opens the tool send a large body. What a stranger sends, with a payment or none, stays small."""
        if (limit := self._call.operation.route.whole_limit) is None or self._call.takes_whole:
            return
        context = context_of(self.scope)
        if context.caller is not None and context.caller.key is not None:
            self._call.takes_whole = True
            if context.allow_body is not None:
                context.allow_body(min(limit, LARGEST_WHOLE_BODY))

    def body_of(self, result: Answer) -> bytes | None:
        return result.body

    def noted(self, result: Answer, key_ignored: str) -> Answer:
        notice = f'299 campus "{key_ignored}: the key was ignored, since this tool is free"'
        return result.adding({"Warning": notice, "Vary": "Authorization"})

    def with_meta(self, result: Answer, meta: Mapping[str, Any]) -> Answer:
        return result

    @property
    def meta(self) -> Mapping[str, Any]:
        return {}

    def sent(self) -> Awaitable[dict[str, Any] | None]:
        self._allow_whole_body()
        return self._call.sent()

    def canonical(self) -> Awaitable[dict[str, Any]]:
        self._allow_whole_body()
        return self._call.canonical()

    def waiting(self) -> AbstractContextManager[None]:
        """What is paid for goes on when its caller hangs up: the answer is stored, and the same call fetches it."""
        self._call.runs_to_end = True
        return nullcontext()

    def answered(self, answer: Answered, made: Answer | None) -> Answer:
        return json_answer(answer.body, status=self._call.operation.status).adding(answer.headers)


def http_gate(gate: Gate, as_task: Callable[[GatedHttpCall], Awaitable[Answer | None]] | None = None) -> HttpGate:
    if as_task is None:
        return lambda call: gate.passed(GatedHttpCall(call))

    async def passed(call: Call) -> Answer:
        gated = GatedHttpCall(call)
        answer = await as_task(gated)
        return await gate.passed(gated) if answer is None else answer

    return passed
