"""Callers who hang up while a slow function runs: their places among the threads, and the other buildings."""

import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlsplit

import pytest
from patience import patience
from serving import Served, serving

from tests import patient
from twins import THREADS

SLOW = """
import time
from pathlib import Path
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware

class Around(Middleware):
    async def on_call_tool(self, context, call_next):
        return await call_next(context)

HERE = Path(__file__).parent
mcp, around = FastMCP("Slow"), FastMCP("Slow", middleware=[Around()])

@around.tool(annotations={"readOnlyHint": True})
@mcp.tool(annotations={"readOnlyHint": True})
def wait() -> str:
    "Wait for a file."
    with (HERE / "runs").open("a") as runs:
        runs.write("x")
    while not (HERE / "go").exists():
        time.sleep(0.02)
    return "done"

@around.tool(annotations={"readOnlyHint": True})
@mcp.tool(annotations={"readOnlyHint": True})
def quick() -> str:
    "Answer at once."
    return "done"
"""
CALLS = 2 * THREADS


def left(campus: Served) -> int:
    lines = [line for line in patient.get(f"{campus.admin}/metrics").text.splitlines() if 'status="499"' in line and "_count" not in line]
    return int(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("campus_requests_total")))


@pytest.mark.parametrize("name", ["mcp", "around"])
def test_callers_who_hang_up_leave_the_queue_and_slow_functions_delay_no_other_building(tmp_path: Path, name: str) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    runs = tmp_path / "runs"
    runs.touch()
    tables = "".join(f'[buildings.{building}]\nserver = "./slow.py:{name}"\n' for building in ("slow", "other"))
    with serving(tmp_path, tables) as campus, ExitStack() as stack:
        stack.callback((tmp_path / "go").touch)
        address = ("127.0.0.1", urlsplit(campus.url).port or 0)
        until(lambda: patient.get(f"{campus.url}/v1/slow/quick").status_code == 200)
        connections = [socket.create_connection(address) for _ in range(CALLS)]
        for connection in connections:
            connection.sendall(b"GET /v1/slow/wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: len(runs.read_text()) == THREADS)
        sleep(1)  # from now on each call is watched
        for connection in connections:
            with closing(connection):
                connection.shutdown(socket.SHUT_RDWR)
        until(lambda: left(campus) >= CALLS - THREADS)
        assert patient.get(f"{campus.url}/v1/other/quick").json() == {"result": "done"}
        (tmp_path / "go").touch()
        assert patient.get(f"{campus.url}/v1/slow/wait").json() == {"result": "done"}
        assert len(runs.read_text()) == THREADS + 1


def until(holds: Callable[[], bool]) -> None:
    deadline = monotonic() + patience(30)
    while not holds():
        assert monotonic() < deadline
        sleep(0.05)
