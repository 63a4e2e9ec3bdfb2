"""The same call of a tool as curl, MCP client, Python and TypeScript: text to copy. Pure."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from campus.visitors import ToolRequest

KEY = "$CAMPUS_KEY"  # The variable that stands for the caller's key: samples never hold the key itself.


@dataclass(frozen=True)
class Sample:
    name: str
    where: str
    text: str


def samples_of(call: ToolRequest, *, url: str, mcp: str, tool: str, arguments: Mapping[str, Any], with_key: bool) -> tuple[Sample, ...]:
    return (
        Sample("curl", "HTTP, shell", curl(call, url, with_key=with_key)),
        Sample("MCP", "MCP client on the command line (fastmcp), shell", fastmcp(mcp, tool, arguments, with_key=with_key)),
        Sample("Python", "MCP (fastmcp), Python", python(mcp, tool, arguments, with_key=with_key)),
        Sample("TypeScript", "HTTP, TypeScript", typescript(call, url, with_key=with_key)),
    )


def curl(call: ToolRequest, url: str, *, with_key: bool) -> str:
    words = ["curl", "-s"]
    words += [] if call.method == "GET" else ["-X", call.method]
    words += [shlex.quote(f"{url}{call.target}")]
    words += ["-H", f'"Authorization: Bearer {KEY}"'] if with_key else []
    words += ["-H", "'Content-Type: application/json'", "-d", shlex.quote(_json(call.body))] if call.body is not None else []
    return " ".join(words)


def fastmcp(mcp: str, tool: str, arguments: Mapping[str, Any], *, with_key: bool) -> str:
    words = ["fastmcp", "call", shlex.quote(mcp), shlex.quote(tool)]
    words += ["--input-json", shlex.quote(_json(arguments))] if arguments else []
    words += ["--auth", f'"{KEY}"'] if with_key else []
    return " ".join(words)


def python(mcp: str, tool: str, arguments: Mapping[str, Any], *, with_key: bool) -> str:
    auth = ', auth=os.environ["CAMPUS_KEY"]' if with_key else ""
    imports = ["import asyncio", *(["import os"] if with_key else []), "", "from fastmcp import Client"]
    return "\n".join(
        [
            *imports,
            "",
            "",
            "async def main():",
            f"    async with Client({_json(mcp)}{auth}) as client:",
            f"        result = await client.call_tool({_json(tool)}, {dict(arguments)!r})",
            "        print(result.structured_content)",
            "",
            "",
            "asyncio.run(main())",
        ]
    )


def typescript(call: ToolRequest, url: str, *, with_key: bool) -> str:
    headers = ["Authorization: `Bearer ${process.env.CAMPUS_KEY}`"] if with_key else []
    headers += ['"Content-Type": "application/json"'] if call.body is not None else []
    lines = [f"const answer = await fetch({_json(f'{url}{call.target}')}, {{", f"  method: {_json(call.method)},"]
    lines += [f"  headers: {{ {', '.join(headers)} }},"] if headers else []
    lines += [f"  body: JSON.stringify({_json(call.body)}),"] if call.body is not None else []
    return "\n".join([*lines, "});", "console.log(answer.status, await answer.json());"])


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
