"""Which tool holds the event loop: a thread looks at what the loop runs when it does not answer in time."""

import asyncio
import inspect
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import CodeType, FrameType

from fastmcp.tools import FunctionTool

from campus.shares import LatestEntries
from twins import DirectTool

HELD_SECONDS = 0.1
NAMED_AGAIN_AFTER = 60.0  # Seconds.
MOST_TOOLS = 1_000
RUNS = frozenset(run.__code__.co_qualname for run in (DirectTool.run, FunctionTool.run))
"""What calls the function of a tool, by name: tools that count coverage replace the code of functions."""
log = logging.getLogger(__name__)


@asynccontextmanager
async def stalls_named() -> AsyncIterator[None]:
    """While it is entered, a tool that holds the loop for over 100 ms is logged with the line where it is, once a minute."""
    ended = threading.Event()
    watch = StallWatch(asyncio.get_running_loop(), threading.get_ident(), ended)
    thread = threading.Thread(target=watch.run, name="campus-stalls", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


class StallWatch:
    """Asks the event loop ten times a second for a sign of life, from a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: int, ended: threading.Event) -> None:
        self._loop = loop
        self._thread = thread
        self._ended = ended
        self._named: LatestEntries[str, float] = LatestEntries(MOST_TOOLS)

    def run(self) -> None:
        alive = threading.Event()
        while not self._ended.wait(HELD_SECONDS):
            alive.clear()
            try:
                self._loop.call_soon_threadsafe(alive.set)
            except RuntimeError:  # the loop is closed
                return
            if not alive.wait(HELD_SECONDS):
                self._name_tool(sys._current_frames().get(self._thread))
                while not (alive.wait(HELD_SECONDS) or self._ended.is_set()):
                    pass

    def _name_tool(self, frame: FrameType | None) -> None:
        found = tool_in(frame)
        if found is None:
            return
        tool, place = found
        now = time.monotonic()
        if now - self._named.get(tool, -NAMED_AGAIN_AFTER) >= NAMED_AGAIN_AFTER:
            self._named[tool] = now
            log.warning(
                "a tool holds the event loop, so that all other calls wait; run slow code by anyio.to_thread.run_sync, or make the tool a"
                " plain def",
                extra={"tool": tool, "at": place, "for_longer_than_ms": round(HELD_SECONDS * 1000)},
            )


def tool_in(frame: FrameType | None) -> tuple[str, str] | None:
    """The name of the tool that is called innermost, and the line of its function that runs; None if no tool is called."""
    inside: dict[CodeType, int] = {}
    while frame is not None:
        if frame.f_code.co_qualname in RUNS:
            owner = frame.f_locals["self"]
            tool: FunctionTool = owner.tool if isinstance(owner, DirectTool) else owner
            code = getattr(inspect.unwrap(tool.fn), "__code__", None)
            return tool.name, "" if code is None else f"{code.co_filename}:{inside.get(code, code.co_firstlineno)}"
        inside[frame.f_code] = frame.f_lineno
        frame = frame.f_back
    return None
