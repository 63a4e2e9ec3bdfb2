"""A caller of a tool that its key pays for who hangs up or cancels while it runs: the call ends, and costs nothing."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from features.credits.kills import PRICE, SOLD, Scene
from patience import patience

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def over_http(url: str, token: str) -> AsyncIterator[None]:
    """A call whose connection ends with the context."""
    head = f"GET /v1/slow/count?number=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    async with await anyio.connect_tcp("127.0.0.1", urlsplit(url).port or 0) as connection:
        await connection.send(head.encode())
        yield


@asynccontextmanager
async def by_an_mcp_client(url: str, token: str) -> AsyncIterator[None]:
    """A call of an MCP client, which is cancelled when the context ends, while the client goes on."""
    transport = StreamableHttpTransport(f"{url}/slow/mcp", headers={"Authorization": f"Bearer {token}"})
    async with Client(transport) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "count", {"number": 1})
        yield
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.5)


@asynccontextmanager
async def over_mcp(url: str, token: str) -> AsyncIterator[None]:
    """An MCP request whose connection ends with the context."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "count", "arguments": {"number": 1}}})
    head = (
        f"POST /slow/mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nAccept: application/json, text/event-stream\r\n"
        f"Content-Type: application/json\r\nMCP-Protocol-Version: 2025-06-18\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    async with await anyio.connect_tcp("127.0.0.1", urlsplit(url).port or 0) as connection:
        await connection.send((head + body).encode())
        yield


async def test_whoever_hangs_up_or_cancels_pays_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, f"sqlite:{tmp_path / 'data'}")
    (tmp_path / "hold").touch()

    async def until(amount: int) -> None:
        with anyio.fail_after(patience(20)):
            while (await anyio.to_thread.run_sync(scene.account)).held != amount:  # noqa: ASYNC110  # another process holds it
                await anyio.sleep(0.05)

    with scene.served() as campus:
        for way in (over_http, over_mcp, by_an_mcp_client):
            async with way(campus.url, scene.token):
                await until(PRICE)
                await anyio.sleep(0.5)  # from now on whoever hangs up is noticed
            await until(0)
    account = await anyio.to_thread.run_sync(scene.account)
    assert (account.balance, account.spent) == (SOLD, 0)
