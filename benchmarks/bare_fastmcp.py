"""Baseline of MCP: a bare FastMCP server with COUNT tools. `bare_fastmcp PORT COUNT`; campus opens the same `server`."""

import sys
from typing import Annotated, Any

from fastmcp import FastMCP
from fastmcp.tools import Tool
from mcp_types import ToolAnnotations
from pydantic import Field
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from benchmarks.baseline_server import listen
from buildings.cve.models import Brief
from buildings.cve.results import brief_of
from buildings.cve.sample import sample_edition

COUNTRY = "US"
Country = Annotated[str, Field(description="Country whose list to return.")]


def server(count: int) -> FastMCP[Any]:
    """A server whose first tool is `brief`, a day's list of the cve building; the others are the same under other names."""
    mcp: FastMCP[Any] = FastMCP(f"Lists {count}", instructions="Says which vulnerabilities to fix first.")
    edition = sample_edition()
    made = brief_of(edition, today=edition.day)

    async def brief(country: Country = COUNTRY) -> Brief:
        """The day's 25 vulnerabilities to fix first, ranked by real-world exploitation."""
        return made

    for number in range(count):
        name = "brief" if number == 0 else f"brief_{number}"
        mcp.add_tool(Tool.from_function(brief, name=name, annotations=ToolAnnotations(read_only_hint=True)))

    @mcp.custom_route("/healthz", methods=["GET"])
    async def well(request: Request) -> Response:
        return PlainTextResponse("ok")

    return mcp


if __name__ == "__main__":
    listen(server(int(sys.argv[2])).http_app(path="/mcp", stateless_http=True), port=int(sys.argv[1]))
