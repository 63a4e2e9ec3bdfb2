"""The log of a served campus: what it contains and what it leaves out."""

import logging
import re
import socket
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlsplit

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from patience import patience
from serving import Served, asked, serving

from campus.observability import OneLine

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


def test_a_text_of_another_machine_stays_in_its_line_of_the_log() -> None:
    hostile = "refused\n2026-11-20T12:00:00Z ERROR campus: owned\x1b[2J\u2028\u202e"
    record = logging.makeLogRecord({"name": "campus", "levelname": "INFO", "msg": "not sent: %s", "args": (hostile,), "reason": hostile})
    line = OneLine().format(record)
    assert (line.isprintable(), line.count("ERROR campus: owned")) == (True, 2)


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


@pytest.mark.anyio
async def test_the_access_log_has_the_callers_address_and_the_template_of_each_route_and_no_path(tmp_path: Path) -> None:
    (tmp_path / "broken_building.py").write_text(BROKEN)
    with serving(tmp_path, CONFIG, environ={"PYTHONPATH": str(tmp_path)}, words=["--access-log"]) as campus:
        headers = {"X-Forwarded-For": "2001:db8::7"}
        for path in ("/v1/broken/refuse", "/v1/broken", "/errors/s3cr3t", "/s3cr3t"):
            asked(f"{campus.url}{path}", headers=headers)
        async with Client(f"{campus.url}/broken/mcp") as client:
            await client.call_tool("refuse", raise_on_error=False)
        wait_for(campus, "route=broken:refuse")
        lines = [line for line in campus.log.splitlines() if "campus.access: request" in line and "/healthz" not in line]
    logged = {(found[1], found[2]) for line in lines if (found := re.search(r"client=(\S+) method=\S+ route=(\S+)", line))}
    assert {("2001:db8::7", route) for route in ("/v1/broken/refuse", "/v1/{building}", "/errors/{code}", "-")} <= logged
    assert {("127.0.0.1", "/broken/mcp"), ("127.0.0.1", "broken:refuse")} <= logged
    assert ("127.0.0.1", "-") not in logged, "what an MCP client asks besides calls has a route too"
    assert "method=GET route=/healthz" in campus.log
    assert not [line for line in lines if "s3cr3t" in line]


def hang_up(campus: Served) -> None:
    """Disconnect in the middle of a request, and wait until the server has noticed."""
    with socket.create_connection(("127.0.0.1", urlsplit(campus.url).port or 0)) as connection:
        connection.sendall(HALF)
    wait_for(campus, "method=POST")


def wait_for(campus: Served, word: str) -> None:
    """Wait until the log contains the word."""
    deadline = monotonic() + patience(20)
    while word not in campus.log:
        assert monotonic() < deadline, campus.log
        sleep(0.02)
