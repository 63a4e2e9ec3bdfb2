"""A client with mcp 1.x, run in its own virtual environment: makes the calls in JSON on standard input and prints the results.

In:  [{"url": "http://…/mcp", "key": "…" | null, "calls": [["tool", {…}], …]}, …], a session for each
Out: [{"protocol": "2025-11-25", "tools": ["…"], "results": [{"is_error": false, "structured": {…}, "text": "…", "meta": {…}}, …]}, …]
"""

import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.types import CallToolResult


def as_data(result: CallToolResult) -> dict[str, Any]:
    return {
        "is_error": result.isError,
        "structured": result.structuredContent,
        "text": result.content[0].text if result.content else "",
        "meta": result.meta or {},
    }


async def visit(url: str, key: str | None, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with streamablehttp_client(url, headers=headers) as (read, write, _), ClientSession(read, write) as session:
        hello = await session.initialize()
        tools = [one.name for one in (await session.list_tools()).tools]
        results = [as_data(await session.call_tool(tool, arguments)) for tool, arguments in calls]
        return {"protocol": hello.protocolVersion, "tools": tools, "results": results}


async def main() -> None:
    print(json.dumps([await visit(**one) for one in json.load(sys.stdin)]))


asyncio.run(main())
