"""Runs a program of how_to_connect, which is on stdin, with the library that it imports, and prints the tools that it was given, as JSON.

It runs in a virtual environment of its own, which has these libraries.
"""

import asyncio
import json
import sys
from typing import Any


async def tools_of(servers: list[Any]) -> list[str]:
    found = []
    for server in servers:
        async with server:
            found += [tool.name for tool in await server.list_tools()]
    return found


names: dict[str, Any] = {}
exec(compile(sys.stdin.read(), "program", "exec"), names)
if "response" in names:
    print(names["response"].output_text)
elif "client" in names:
    print(json.dumps([tool.name for tool in names["tools"]]))
else:
    assert names["agent"]
    print(json.dumps(asyncio.run(tools_of(names["servers"]))))
