"""A third-party server with one tool: it records every run in a file, and waits while another file exists."""

import os
from pathlib import Path

import anyio
from fastmcp import FastMCP

FOLDER = Path(os.environ["SLOW_TOOL_FOLDER"])
mcp = FastMCP("Slow")


@mcp.tool(annotations={"readOnlyHint": True})
async def count(number: int) -> dict[str, int]:
    """The number."""
    with (FOLDER / "runs").open("a") as runs:
        runs.write(f"{number}\n")
    while (FOLDER / "hold").exists():
        (FOLDER / "held").touch()
        await anyio.sleep(0.02)
    return {"number": number}
