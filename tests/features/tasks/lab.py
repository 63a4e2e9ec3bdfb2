"""An author's server whose tools run as background tasks: it records every run in a file, and waits while another file exists."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_access_token
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp_types import CallToolResult, TextContent

SOON = {"poll_interval": timedelta(milliseconds=50)}


def make_lab(folder: Path) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Lab", mask_error_details=True)
    mcp.add_extension(TasksExtension())

    async def held(what: str) -> None:
        with (folder / "runs").open("a") as runs:
            runs.write(f"{what}\n")
        while (folder / "hold").exists():
            (folder / "held").touch()
            await anyio.sleep(0.01)

    @mcp.tool(task=TaskConfig(mode="required", **SOON))
    async def measure(sample: int, ctx: Context) -> dict[str, int]:
        """Measure a sample."""
        await ctx.report_progress(1, 2)
        await held(f"measure {sample}")
        return {"sample": sample}

    @mcp.tool(task=TaskConfig(mode="optional", **SOON))
    async def weigh(sample: int) -> str:
        """Weigh a sample, now or later."""
        await held(f"weigh {sample}")
        return f"{sample} g"

    @mcp.tool(task=TaskConfig(mode="optional", **SOON))
    async def spill(sample: int) -> str:
        """Fail."""
        if sample:
            raise ToolError(f"sample {sample} is empty")
        raise LookupError("a secret")

    @mcp.tool
    async def look(sample: int) -> str:
        """Look at a sample."""
        return f"sample {sample}"

    @mcp.tool(output_schema=None)
    async def show() -> Any:
        """Show a sample, in the protocol's own form."""
        return CallToolResult(content=[TextContent(type="text", text="sample")])

    @mcp.tool(task=TaskConfig(mode="required", **SOON))
    async def sign() -> str:
        """Who signs."""
        token = get_access_token()
        return token.client_id if token else "nobody"

    return mcp


if "LAB_FOLDER" in os.environ:
    mcp = make_lab(Path(os.environ["LAB_FOLDER"]))
