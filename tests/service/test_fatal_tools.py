"""A tool that raises what would end its task, the server or the process: its call fails, logged, and all else goes on."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware
from service.conftest import FRAMES, UNLIMITED

from campus.testing import open_campus

pytestmark = pytest.mark.anyio
FATAL: dict[str, Callable[[], BaseException]] = {
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "cancellation": asyncio.CancelledError,
    "group": lambda: BaseExceptionGroup("several", [SystemExit(3), ValueError("one")]),
}


def fatal_server(*, is_direct: bool) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Fatal", middleware=[] if is_direct else [Middleware()])

    @mcp.tool(annotations={"readOnlyHint": True})
    async def awaited(kind: str) -> str:
        """Raise it in the event loop."""
        await asyncio.sleep(0)
        if kind in FATAL:
            raise FATAL[kind]()
        return kind

    @mcp.tool(annotations={"readOnlyHint": True})
    def threaded(kind: str) -> str:
        """Raise it in a thread."""
        raise FATAL[kind]()

    return mcp


async def test_what_would_end_the_server_fails_the_call_alone(caplog: pytest.LogCaptureFixture) -> None:
    buildings = {"directly": fatal_server(is_direct=True), "by_its_server": fatal_server(is_direct=False)}
    async with open_campus(**buildings, tables=UNLIMITED) as campus:
        for building, frame, tool, kind in product(buildings, FRAMES, ("awaited", "threaded"), FATAL):
            caplog.clear()
            answer = await replace(campus, frame=frame).call(tool, building=building, kind=kind)
            assert (answer.status, answer.code) == (500, "internal_error"), (building, frame, tool, kind)
            logged = [record for record in caplog.records if record.levelno == logging.ERROR and record.exc_info]
            assert type(FATAL[kind]()).__name__ in str(logged[0].exc_info[1]), (tool, kind)  # type: ignore[index]
        for building, frame in product(buildings, FRAMES):
            assert (await replace(campus, frame=frame).call("awaited", building=building, kind="none")).data == "none"
