"""What the log of a serving campus says, and what it leaves out."""

import socket
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlsplit

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from serving import Served, asked, serving

BROKEN = """
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
mcp = FastMCP("Broken")

@mcp.tool(annotations={"readOnlyHint": True})
def fail() -> str:
    "Fail."
    raise RuntimeError("the reason")

@mcp.tool(annotations={"readOnlyHint": True})
def refuse() -> str:
    "Refuse."
    raise ToolError("there is no such tide")
"""
CONFIG = """
[buildings.gateway]
path = "/"
[buildings.broken]
server = "broken_building:mcp"
tools = { "*" = { free = true } }
"""
HALF = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Accept: application/json, text/event-stream\r\nContent-Length: 100\r\n\r\n{"jsonrpc"'
)


def test_a_fault_of_ours_is_logged_with_its_traceback_and_a_caller_who_hangs_up_is_not(tmp_path: Path) -> None:
    (tmp_path / "broken_building.py").write_text(BROKEN)
    with serving(tmp_path, CONFIG, environ={"PYTHONPATH": str(tmp_path)}, words=["--access-log"]) as campus:
        hang_up(campus)
        assert "Traceback" not in campus.log
        assert asked(f"{campus.url}/v1/broken/fail").status_code == 500
        assert campus.log.count("Traceback") == 1
        assert "RuntimeError: the reason" in campus.log


@pytest.mark.anyio
async def test_what_is_logged_without_an_error_disturbs_no_call(tmp_path: Path) -> None:
    (tmp_path / "broken_building.py").write_text(BROKEN)
    with serving(tmp_path, CONFIG, environ={"PYTHONPATH": str(tmp_path)}) as campus:
        async with Client(f"{campus.url}/broken/mcp") as client:
            with pytest.raises(ToolError, match="there is no such tide"):
                await client.call_tool("refuse")


def hang_up(campus: Served) -> None:
    """Leave in the middle of a request, and wait until that was noticed."""
    with socket.create_connection(("127.0.0.1", urlsplit(campus.url).port or 0)) as connection:
        connection.sendall(HALF)
    deadline = monotonic() + 20
    while "method=POST" not in campus.log:
        assert monotonic() < deadline, campus.log
        sleep(0.02)
