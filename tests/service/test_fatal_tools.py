"""A tool that raises what would end its task, the server or the process: its call fails, logged, and all else goes on."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Literal

import pytest
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware

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


@pytest.mark.parametrize("frame", ["http", "mcp"])
@pytest.mark.parametrize("is_direct", [True, False], ids=["directly", "by its server"])
async def test_what_would_end_the_server_fails_the_call_alone(
    is_direct: bool, frame: Literal["http", "mcp"], caplog: pytest.LogCaptureFixture
) -> None:
    async with open_campus(frame=frame, fatal=fatal_server(is_direct=is_direct)) as campus:
        for tool in ("awaited", "threaded"):
            for kind, error in FATAL.items():
                caplog.clear()
                answer = await campus.call(tool, kind=kind)
                assert (answer.status, answer.code) == (500, "internal_error"), (tool, kind)
                logged = [record for record in caplog.records if record.levelno == logging.ERROR and record.exc_info]
                assert type(error()).__name__ in str(logged[0].exc_info[1]), (tool, kind)  # type: ignore[index]
        assert (await campus.call("awaited", kind="none")).data == "none"
