"""A client with mcp 1.x, run in its own virtual environment: goes by OAuth from a bare URL to a tool's answer, and refreshes.

In:  the URL of an MCP endpoint, a key, a tool without arguments
Out: {"tools": ["…"], "is_error": false, "refreshed": true}
"""

import asyncio
import json
import sys
from typing import Any

from browser import allow, answer_in
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.auth import OAuthClientMetadata

CALLBACK = "http://localhost:26901/callback"


class Storage:
    """The client's tokens and registration, in memory."""

    tokens: Any = None
    client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client: Any) -> None:
        self.client = client


async def main(url: str, key: str, tool: str) -> None:
    found: dict[str, str] = {}

    async def redirect(address: str) -> None:
        found.update(answer_in(await asyncio.to_thread(allow, address, key)))

    async def callback() -> tuple[str, str | None]:
        return found["code"], found.get("state")

    storage = Storage()
    provider = OAuthClientProvider(url, OAuthClientMetadata(client_name="mcp 1", redirect_uris=[CALLBACK]), storage, redirect, callback)
    async with streamablehttp_client(url, auth=provider) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        tools = [one.name for one in (await session.list_tools()).tools]
        first = storage.tokens.access_token
        provider.context.token_expiry_time = 1
        result = await session.call_tool(tool)
    print(json.dumps({"tools": tools, "is_error": result.isError, "refreshed": storage.tokens.access_token != first}))


asyncio.run(main(*sys.argv[1:]))
