"""A building that is another machine's server, which gets nothing of campus's callers but their arguments."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep

import httpx
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from patience import patience
from serving import free_port, serving

from tests import forkserver, patient
from tests.forkserver import Forked

pytestmark = pytest.mark.anyio

REMOTE = """
import sys
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
mcp = FastMCP("Tides")

@mcp.tool(annotations={"readOnlyHint": True})
def tide(port: str) -> str:
    "The tide at a port."
    if port == "Paris":
        raise ToolError("Paris has no sea")
    return f"high at {port}"

mcp.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False)
"""
CONFIG = """
[buildings.tides]
server = {{ url = "http://127.0.0.1:{port}/mcp" }}
tools = {{ "*" = {{ free = true, route = "GET /v1/tide" }} }}
"""


@contextmanager
def remote(port: int, source: str = REMOTE) -> Iterator[Forked]:
    with ExitStack() as stack:
        nothing = stack.enter_context(Path(os.devnull).open("wb"))
        process = stack.enter_context(forkserver.shared().start(source, str(port), stdout=nothing, stderr=nothing))
        deadline = monotonic() + patience(30)
        while monotonic() < deadline:
            try:
                patient.get(f"http://127.0.0.1:{port}/mcp")
                break
            except httpx.TransportError:
                sleep(0.05)
        yield process


NOSY = """
import sys
from fastmcp import FastMCP
from fastmcp.server.dependencies import get_http_headers
mcp = FastMCP("Nosy")

@mcp.tool(annotations={"readOnlyHint": True})
def seen() -> str:
    "Every header of the request."
    return str(get_http_headers(include_all=True))

mcp.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False)
"""


async def test_a_callers_key_and_headers_do_not_reach_the_server_of_somebody_else(tmp_path: Path) -> None:
    port = free_port()
    text = f'[buildings.nosy]\nserver = {{ url = "http://127.0.0.1:{port}/mcp", headers = {{ x-ours = "yes" }} }}\n'
    sent = {"Authorization": "Bearer campus_live_secret", "Idempotency-Key": "a-secret-of-the-caller", "X-Payment": "signed"}
    with remote(port, NOSY), serving(tmp_path, text) as campus:
        over_http = patient.get(f"{campus.url}/v1/nosy/seen", headers=sent).json()["result"]
        async with Client(StreamableHttpTransport(f"{campus.url}/nosy/mcp", headers=sent)) as client:
            over_mcp = (await client.call_tool("seen")).data
    for seen in (over_http, over_mcp):
        assert "'x-ours': 'yes'" in seen
        assert [word for word in ("campus_live_secret", "a-secret-of-the-caller", "signed") if word in seen] == []
