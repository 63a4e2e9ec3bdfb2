"""Runs in a virtual environment with mcp 1.x: makes the calls given as JSON on standard input, prints what came back.

In:  [{"url": "http://…/mcp", "key": "…" | null, "tool": "…", "arguments": {…}}, …]
Out: [{"is_error": false, "structured": {…}, "text": "…", "tools": ["…"], "protocol": "2025-11-25"}, …]
"""

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


async def call(url: str, key: str | None, tool: str, arguments: dict) -> dict:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with streamablehttp_client(url, headers=headers) as (read, write, _), ClientSession(read, write) as session:
        hello = await session.initialize()
        tools = await session.list_tools()
        result = await session.call_tool(tool, arguments)
        return {
            "is_error": result.isError,
            "structured": result.structuredContent,
            "text": result.content[0].text if result.content else "",
            "tools": [one.name for one in tools.tools],
            "protocol": hello.protocolVersion,
        }


async def main() -> None:
    print(json.dumps([await call(**one) for one in json.load(sys.stdin)]))


asyncio.run(main())
