"""Tools that run as background tasks: over MCP as on the bare server, over HTTP with 202 and an address to poll, and within limits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import uvicorn
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp_tasks.client import call_tool_task
from mcp import MCPError
from mcp_oracle import MODERN, P, request_of
from patience import patience
from serving import free_port
from starlette.types import ASGIApp
from tasks.lab import make_lab

from campus import access, free
from campus.testing import Clock, TestCampus, open_campus

pytestmark = pytest.mark.anyio
TASKS = {f"{P}clientCapabilities": {"extensions": {f"{P}tasks": {}}}}
FREE = {"*": {"free": True}}


@asynccontextmanager
async def listening(app: ASGIApp, *, lifespan: str = "off") -> AsyncIterator[str]:
    """The app behind a real socket."""
    config = uvicorn.Config(app, port=free_port(), lifespan=lifespan, log_level="error")
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        while not server.started:  # noqa: ASYNC110  # uvicorn has no event to wait for
            await anyio.sleep(0.01)
        yield f"http://127.0.0.1:{config.port}"
        server.should_exit = True


async def seen_by_a_client(url: str, folder: Path) -> dict[str, Any]:
    """What a client of the current protocol, which knows tasks, sees of each kind of call."""
    found: dict[str, Any] = {}
    async with Client(StreamableHttpTransport(url)) as client:
        for name, arguments in (("measure", {"sample": 1}), ("weigh", {"sample": 2}), ("spill", {"sample": 3}), ("look", {"sample": 4})):
            result = await client.call_tool(name, arguments, raise_on_error=False)
            found[name] = result.content, result.structured_content, result.is_error
        crashed = await client.call_tool("spill", {"sample": 0}, raise_on_error=False)
        found["crash"] = crashed.is_error
        wrong = await client.call_tool("measure", {"sample": "x"}, raise_on_error=False)
        found["wrong arguments"] = wrong.is_error
        (folder / "hold").touch()
        task = await call_tool_task(client, "weigh", {"sample": 5})
        created = task.create_result
        found["created"] = created.status, created.poll_interval_ms, created.ttl_ms > 0
        found["running"] = (await task.status()).status
        await task.cancel()
        found["cancelled"] = (await task.status()).status
        (folder / "hold").unlink()
        with pytest.raises(MCPError) as unknown:
            await call_tool_task_of(client, "none").status()
        found["unknown"] = unknown.value.error.code
    return found


def call_tool_task_of(client: Client[Any], task_id: str) -> Any:
    from fastmcp_tasks.client import ToolTask
    from fastmcp_tasks.client_models import ClientCreateTaskResult

    created = ClientCreateTaskResult.model_validate(
        {"taskId": task_id, "status": "working", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": 1, "resultType": "task"}
    )
    return ToolTask(client, "weigh", created)


async def test_a_client_of_the_protocol_sees_the_same_as_on_the_bare_server(tmp_path: Path) -> None:
    bare = make_lab(tmp_path).http_app(path="/lab/mcp", stateless_http=True)
    async with listening(bare, lifespan="on") as url:
        expected = await seen_by_a_client(f"{url}/lab/mcp", tmp_path)
    async with open_campus(lab=make_lab(tmp_path), tools=FREE) as campus, listening(campus.app) as url:
        assert await seen_by_a_client(f"{url}/lab/mcp", tmp_path) == expected
