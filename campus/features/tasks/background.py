"""Calls that run as background tasks: begun through the gate as any other, charged when they succeed, and polled by their callers."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from secrets import token_bytes
from sys import maxsize
from typing import Any

import anyio
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp_types import CallToolResult
from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from campus.caller import Caller
from campus.catalog.authors import task_path
from campus.context import CONTEXT, context_of
from campus.errors import StorageUnavailable
from campus.features.tasks.problems import ENDED
from campus.features.tasks.runner import TaskRunner
from campus.features.tasks.tables import TaskRow
from campus.observability import utc_text
from campus.paywall.admission import Paywall
from campus.paywall.gate import Gate
from campus.paywall.results import body_of, refusal, result_of
from campus.pricing import task_seconds
from campus.problems import EXPLAINED_AT, fixed_problem, storage_problem
from campus.secrets import random_base62
from campus.steps import Answered, GatedCall, Purchase
from twins import (
    Answer,
    Problem,
    RouteEntry,
    ToolOnServer,
    json_answer,
    problem_answer,
    problem_of,
    result_as_json,
    send_answer,
    with_meta,
)

LARGEST_RESULT = 1 << 20
"""Bytes of a task's result."""
SETTLING_SECONDS = 60
"""How long before the end of a payment's authorization its task is stopped: it is charged after that."""
RESULT_KEPT = timedelta(minutes=15)
"""How long a result is kept that nobody paid for."""
ID_LENGTH = 32
LONGEST_PREFERENCE = 1_000
"""How many bytes of a Prefer header are read."""
STATUSES: Mapping[str, str] = {"charging": "working", "interrupted": "failed", "key_ended": "failed"}
"""What callers are told of a task's state, where it is another word."""
log = logging.getLogger(__name__)


class Begun:
    """What the request of a task waits for: the task, or the end of the call if it ends before there is one."""

    def __init__(self) -> None:
        self.is_known = anyio.Event()
        self.scope = anyio.CancelScope()
        self.task: TaskRow | None = None
        self.result: ToolResult | None = None
        self.error: Exception | None = None


class TaskCall:
    """A call that goes on after its request, for the gate: read from its frame, and run by `run_tool` in a scope of its own.

    The gate runs it once its caller is admitted or its payment is reserved. Only then does its task begin. `purchase` finds the task of
    its payment again.
    """

    def __init__(
        self, call: GatedCall[Any], tool: ToolOnServer, run_tool: Callable[["TaskCall"], Awaitable[ToolResult]], purchase: Purchase | None
    ) -> None:
        """See GatedCall for the attributes and for what follows."""
        self.frame = call.frame
        self.scope: Scope = {**call.scope, CONTEXT: replace(context_of(call.scope), caller=None)}
        self.tool = call.tool
        self.route = call.route
        self.served_by = tool
        self.purchase = purchase
        self.begun = Begun()
        self.method, self.meta = call.method, call.meta
        self.sent, self.canonical = call.sent, call.canonical
        self._run_tool = run_tool

    def run(self) -> Awaitable[ToolResult]:
        return self._run_tool(self)

    def body_of(self, result: ToolResult) -> bytes | None:
        return body_of(result, self.served_by.operation)

    def noted(self, result: ToolResult, key_ignored: str) -> ToolResult:
        return _with_meta(result, {"key_ignored": key_ignored})

    def with_meta(self, result: ToolResult, meta: Mapping[str, Any]) -> ToolResult:
        return _with_meta(result, meta)

    def waiting(self) -> AbstractContextManager[None]:
        return nullcontext()

    def answered(self, answer: Answered, made: ToolResult | None) -> ToolResult:
        context_of(self.scope).added = answer.meta
        return _with_meta(made or result_of(answer.body, self.served_by.operation), answer.meta)


class BackgroundTasks:
    """The tasks of one building's tools: begun in either frame, and seen in both."""

    def __init__(
        self,
        gate: Gate,
        paywall: Paywall,
        runner: TaskRunner,
        tools: Mapping[str, ToolOnServer],
        as_task: Callable[["BackgroundTasks", GatedCall[Any]], Awaitable[Any]],
    ) -> None:
        self._as_task = as_task
        self._gate = gate
        self._seller = runner.store.seller
        self._paywall = paywall
        self._runner = runner
        self._store = runner.store
        self._tools = tools
        self._building = gate.site.name
        route = RouteEntry(("GET", "HEAD", "DELETE"), task_path(self._building), self._polled, f"the background tasks of {self._building}")
        self.routes: Sequence[RouteEntry] = [route]

    async def begin(self, call: GatedCall[Any]) -> TaskRow | ToolResult:
        """Begin the call's task, or find the one that its payment began; the result, if the payment bought it without a task that is kept.

        Raises the refusal of a call that is not admitted, whose payment or arguments are not valid, or for which there is no room.
        """
        purchase = await self._seller.purchase(call, self._gate.offers[call.tool]) if self._seller else None
        with stored_reachable():
            if purchase is not None and (earlier := await self._store.bought(purchase.digest)) is not None:
                return earlier
        background = TaskCall(call, self._tools[call.tool], self._run_tool, purchase)
        begun = background.begun
        self._runner.start(partial(self._carry_out, background))
        try:
            await begun.is_known.wait()
        finally:
            if not begun.is_known.is_set():
                begun.scope.cancel()  # nobody will know of it
        if begun.task is not None:
            return begun.task
        if begun.result is not None:
            context_of(call.scope).added = context_of(background.scope).added
            return begun.result
        raise begun.error or fixed_problem("storage_unavailable")

    async def over_http(self, call: GatedCall[Any]) -> Answer | None:
        """The answer to a call that runs as a task; None for one that does not."""
        tool = self._tools.get(call.tool)
        if tool is None or not (_runs_only_so(tool) or (call.scope["method"] != "HEAD" and prefers_async(call.scope))):
            return None
        begun = await self.begin(call)
        return self._accepted(begun) if isinstance(begun, TaskRow) else self._answer_of(begun, tool)

    async def over_mcp(self, call: GatedCall[Any]) -> Any:
        """The task of a call that is begun as one, or its result if its payment bought it before."""
        return await self._as_task(self, call)

    async def seen(self, task_id: str, scope: Scope) -> TaskRow | None:
        """The building's task of this id, for a key of its lineage. A key that has ended sees only that the task ended with it."""
        credential = self._paywall.peek(scope) or await self._paywall.find(scope)
        task = await self._store.find(task_id, building=self._building, owner=credential.key.lineage if credential.key else None)
        if task is None or task.tool not in self._tools:
            return None
        return task if task.owner is None or credential.state == "valid" or task.status == "key_ended" else None

    async def cancelled(self, task: TaskRow) -> TaskRow:
        """The task after its cancellation, which takes effect unless it has ended or is being charged."""
        task = await self._store.cancel(task)
        if task.status == "cancelled":
            self._runner.stop(task.id)
        return task

    def poll_milliseconds(self, task: TaskRow) -> int:
        """How long its caller is to wait before asking again."""
        return int(self._tools[task.tool].operation.tool.task_config.poll_interval.total_seconds() * 1000)

    async def _carry_out(self, call: TaskCall) -> None:
        """Have the call pass the gate, and store how its task ended."""
        begun = call.begun
        try:
            with begun.scope:
                begun.result = await self._gate.passed(call)
        except Exception as error:  # the border: the request raises it, or it is the task's result
            begun.error = error
        finally:
            with anyio.CancelScope(shield=True):
                await self._conclude(call)
            begun.is_known.set()

    async def _conclude(self, call: TaskCall) -> None:
        begun = call.begun
        error = begun.error
        result = begun.result
        if begun.task is None or (isinstance(error, Problem) and error.code == "payment_in_flight"):  # the payment's state decides
            return
        try:
            if error is not None:
                result = refusal(problem_of(error, call.served_by.operation, call.scope), call.scope)
            is_charged = error is None and bool(context_of(call.scope).added)
            stored = None if result is None else result_as_json(result)
            await self._store.conclude(begun.task.id, stored, kept_until=self._kept_until(call), is_charged=is_charged)
        except Exception as failure:  # nothing must end the runner; the task is concluded when its lease has ended
            log.error("task not concluded: %s", failure, exc_info=failure, extra={"task_tool": call.route})

    async def _run_tool(self, call: TaskCall) -> ToolResult:
        """Begin the task, and run its tool to the end. Before a payment or a key is charged, the result is stored."""
        await call.canonical()
        caller = context_of(call.scope).caller
        assert caller is not None, "the gate admitted the call"
        longest = task_seconds(call.served_by.operation.tool)
        seconds = min(longest, self._payable_seconds(call, caller))
        task = await self._stored(call, caller, seconds)
        call.begun.task = task
        call.begun.is_known.set()
        with self._runner.running(task.id, seconds=seconds, maker=caller.maker) as scope:
            result = _as_tool_result(await call.served_by.call(await call.sent() or {}, call.scope), call.served_by)
        if scope.cancelled_caught:
            raise task_timeout(seconds, longest) if anyio.current_time() >= scope.deadline else Problem(*ENDED["cancelled"])
        stored = result_as_json(result)
        if len(stored) > LARGEST_RESULT:
            raise Problem(500, "result_too_large", f"the result of the task has more than {LARGEST_RESULT} bytes, and is not kept")
        is_charged = (caller.payment or caller.key) is not None and not result.is_error
        if is_charged and not await self._store.charge(task.id, stored, kept_until=self._kept_until(call)):
            raise Problem(*ENDED["cancelled"])
        return result

    async def _stored(self, call: TaskCall, caller: Caller, seconds: int) -> TaskRow:
        owner = caller.key.lineage if caller.key else None
        task = self._store.new(
            id=f"task_{random_base62(ID_LENGTH, token_bytes)}",
            building=self._building,
            tool=call.tool,
            owner=owner,
            started_by=owner or caller.network,
            purchase=call.purchase.digest if call.purchase and caller.payment else None,
            payment=caller.payment,
            deadline=self._store.now() + timedelta(seconds=seconds),
            kept_until=self._kept_until(call, seconds),
        )
        await self._store.begin(task)
        return task

    def _payable_seconds(self, call: TaskCall, caller: Caller) -> int:
        """For how long a task may still run and be charged afterwards; as long as any, if it is not paid for."""
        if self._seller is None or not caller.payment:
            return maxsize
        return max(0, self._seller.payable_until(call) - int(self._store.now().timestamp()) - SETTLING_SECONDS)

    def _kept_until(self, call: TaskCall, seconds: int = 0) -> datetime:
        """How long a result is kept that comes in so many seconds."""
        return self._store.now() + timedelta(seconds=seconds) + (call.purchase.kept if call.purchase else RESULT_KEPT)

    async def _polled(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: the state of a task, its result, or its cancellation."""
        context_of(scope).route = task_path(self._building)  # the path holds a secret
        try:
            with stored_reachable():
                answer = await self._poll(scope)
        except Problem as problem:
            answer = problem_answer(problem, types=EXPLAINED_AT, request_id=scope.get("request_id"))
        await send_answer(send, answer, with_body=scope["method"] != "HEAD")

    async def _poll(self, scope: Scope) -> Answer:
        task = await self.seen(scope["path_params"]["task_id"], scope)
        if task is None:
            raise Problem(404, "not_found", "there is no task of this id, it is no longer kept, or it was begun with another key")
        if scope["method"] == "DELETE":
            return json_answer(self._view(await self.cancelled(task)))
        if task.status in ENDED:
            raise Problem(*ENDED[task.status])
        if task.result is None or task.status != "completed":
            return self._accepted(task)
        return self._answer_of(ToolResult.from_mcp_result(CallToolResult.model_validate_json(task.result)), self._tools[task.tool])

    def _accepted(self, task: TaskRow) -> Answer:
        waits = str(max(1, self.poll_milliseconds(task) // 1000))
        return json_answer(self._view(task), status=202).adding({"Location": self._path(task), "Retry-After": waits})

    def _answer_of(self, result: ToolResult, tool: ToolOnServer) -> Answer:
        """A task's result as its tool answers over HTTP, for its caller alone. Raises the problem of a failed one."""
        answer = tool.encoder.encode_server_result(result)
        return json_answer(answer.body, status=answer.status).adding(self._seller.headers(result.meta or {}) if self._seller else {})

    def _path(self, task: TaskRow) -> str:
        return task_path(self._building, task.id)

    def _view(self, task: TaskRow) -> bytes:
        """A task as HTTP shows it: see TASK_SCHEMA."""
        shown: dict[str, Any] = {
            "id": task.id,
            "tool": task.tool,
            "status": STATUSES.get(task.status, task.status),
            "url": f"{self._gate.site.url}{self._path(task)}",
            "created_at": utc_text(task.created_at),
            "deadline": utc_text(task.deadline),
            "poll_interval_ms": self.poll_milliseconds(task),
        }
        return to_json(shown)


@contextmanager
def stored_reachable() -> Iterator[None]:
    """Problem 503 if the database cannot be used."""
    try:
        yield
    except StorageUnavailable as error:
        raise storage_problem(error, log) from None


def prefers_async(scope: Scope) -> bool:
    """Whether the request asks to be answered before the tool has run: RFC 7240's `Prefer: respond-async`."""
    sent = b",".join(value for name, value in scope["headers"] if name == b"prefer")[:LONGEST_PREFERENCE].lower()
    return any(part.partition(b";")[0].strip() == b"respond-async" for part in sent.split(b","))


def task_timeout(seconds: int, longest: int) -> Problem:
    """504: the task ran for so many seconds, and was stopped; `longest` is how long its tool may run."""
    why = "" if seconds == longest else ", because its payment can be charged only until its validBefore; sign one that is valid longer"
    return Problem(504, "timeout", f"the task was stopped after {seconds} seconds, and nothing was charged{why}")


def _runs_only_so(tool: ToolOnServer) -> bool:
    return tool.operation.tool.task_config.mode == "required"


def _as_tool_result(result: Any, tool: ToolOnServer) -> ToolResult:
    """What the server returned, as a tool's result. Raises Problem 409 `input_required` for a question to the caller."""
    if isinstance(result, InputRequiredToolResult):
        tool.encoder.encode_server_result(result)
    if isinstance(result, ToolResult):
        return result
    return ToolResult(structured_content=result.model_dump(mode="json", by_alias=True, exclude_none=True))


def _with_meta(result: ToolResult, more: Mapping[str, Any]) -> ToolResult:
    changed = with_meta(result, more)
    assert isinstance(changed, ToolResult)
    return changed
