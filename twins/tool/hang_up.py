"""What becomes of a call whose caller hangs up, the same over HTTP and MCP: the tool is cancelled if it waits.

A function that runs in a thread cannot be stopped. It keeps its place among its building's threads until it returns; a call that still
waits for such a place gives up its turn.
"""

import asyncio
import logging
from collections.abc import Awaitable, Generator, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, TypeVar

import anyio
from starlette.types import Receive

WATCH_AFTER = 0.25  # Seconds after which a call is watched: most are over by then, and pay one timer.
T = TypeVar("T")
logger = logging.getLogger(__name__)


class ClientDisconnectedError(Exception):
    """The caller disconnected before the answer: nobody waits for it."""


class WaitingCaller:
    """The caller of a call in progress. Plain HTTP has no sign of life before the answer."""

    __slots__ = ()
    receive: Receive
    ping_seconds = inf
    """After so many seconds of silence `ping` is called."""
    pings_at_once = False
    watch: "HangUpWatch | None" = None
    """The watch of a gate that may wait: the call's own wait is under it."""

    async def ping(self) -> None:
        """Send a sign of life."""


class Begun(Generator[Any, Any, T]):
    """A coroutine that was run up to its first wait. Most never wait: then it `is_over`, and `result` is what it returned.

    Otherwise await it, once, for the rest. What only a wait needs, such as a timer, is begun in between. An anyio scope must not be,
    if the coroutine may have entered one of its own by then: scopes end in the reverse order of their beginning.
    """

    __slots__ = ("_first", "_is_at_first", "_steps", "is_over", "result")

    def __init__(self, work: Awaitable[T]) -> None:
        """Raises what the coroutine raises before its first wait."""
        self._steps: Generator[Any, Any, T] = work.__await__()
        self.is_over = False
        try:
            self._first = next(self._steps)
            self._is_at_first = True
        except StopIteration as end:
            self.is_over = True
            self.result: T = end.value

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def send(self, value: Any, /) -> Any:
        if self._is_at_first:
            self._is_at_first = False
            return self._first
        return self._steps.send(value)

    def throw(self, typ: Any, val: Any = None, tb: Any = None, /) -> Any:
        self._is_at_first = False
        return self._steps.throw(typ if val is None else val)


class HangUpWatch:
    """Watches over a call that waits: if its caller hangs up it is cancelled, and if nothing is sent for long its stream is kept alive.

    Most calls that wait are over within WATCH_AFTER, and pay for a timer only. Without a `scope` the call runs to its end.
    """

    __slots__ = ("_caller", "_is_over", "_is_sending", "_scope", "_task", "_timer")

    def __init__(self, caller: WaitingCaller, scope: anyio.CancelScope | None) -> None:
        self._caller = caller
        self._scope = scope
        self._is_over = self._is_sending = False
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER, self._begin)

    def stop(self) -> None:
        """The call is over. What is being sent is sent to its end: the answer waits for it."""
        self._is_over = True
        self._timer.cancel()
        if self._task is not None and not self._is_sending:
            self._task.cancel()

    def _begin(self) -> None:
        # a task group would cost each call more than the rest of the watch, and most calls never need the task
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        caller = self._caller
        try:
            if caller.pings_at_once:
                await self._ping()
            is_read = False
            while not self._is_over:
                with anyio.move_on_after(caller.ping_seconds):
                    message = await caller.receive()
                    if message["type"] == "http.disconnect":
                        break
                    if is_read:  # an app around repeats the request instead of waiting: it would be asked for ever, and nobody else served
                        await anyio.sleep_forever()
                    is_read = not message.get("more_body", False)
                    continue
                await self._ping()
        except Exception:  # whatever the server raises here means that nobody can be answered
            logger.debug("the connection of a call failed", exc_info=True)
        if self._scope is not None and not self._is_over:
            self._scope.cancel()

    @contextmanager
    def cancelling(self, scope: anyio.CancelScope | None) -> Iterator[None]:
        self._scope = scope
        try:
            yield
        finally:
            self._scope = None

    async def _ping(self) -> None:
        self._is_sending = True
        try:
            await self._caller.ping()
        finally:
            self._is_sending = False


class Interruptible:
    def __init__(self, *, unstoppable: int = 0) -> None:
        """So many calls at once are not watched: they run in threads, which nobody can stop. Further ones wait for a place."""
        self._unstoppable = unstoppable
        self._running = 0
        self.waits: bool | None = None
        """Whether one of them has waited; None before the first."""

    async def run(self, work: Awaitable[T], caller: WaitingCaller) -> T:
        """What the work returns. Raises ClientDisconnectedError if the caller has hung up and the work was cancelled.

        A cancel scope costs as much as a small tool. So one that has been called and has never waited goes without: the first call
        of such a tool that waits after all runs to its end, and from then on there is a scope.
        """
        if self._running < self._unstoppable:
            self._running += 1
            try:
                return await work
            finally:
                self._running -= 1
        if self.waits is False:
            begun = Begun(work)
            self.waits = not begun.is_over
            return begun.result if begun.is_over else await _watched(begun, caller, None)
        with anyio.CancelScope() as running:
            begun = Begun(work)
            self.waits = not begun.is_over or bool(self.waits)
            return begun.result if begun.is_over else await _watched(begun, caller, running)
        raise ClientDisconnectedError


async def _watched(begun: Begun[T], caller: WaitingCaller, running: anyio.CancelScope | None) -> T:
    if caller.watch is not None:
        with caller.watch.cancelling(running):
            return await begun
    watch = HangUpWatch(caller, running)
    try:
        return await begun
    finally:
        watch.stop()
