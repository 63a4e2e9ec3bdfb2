"""Baseline of the start: the smallest FastMCP server. `smallest_fastmcp PORT`."""

import sys

from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from benchmarks.baseline_server import listen

mcp = FastMCP("Hello")


@mcp.tool
async def hello() -> str:
    """Say hello."""
    return "hello"


@mcp.custom_route("/healthz", methods=["GET"])
async def well(request: Request) -> Response:
    """That the server is up."""
    return PlainTextResponse("ok")


if __name__ == "__main__":
    listen(mcp.http_app(path="/mcp", stateless_http=True), port=int(sys.argv[1]))
