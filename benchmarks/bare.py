"""The baseline of MCP: a bare FastMCP server with as many tools as asked. `bare PORT COUNT`; campus opens `server` as it is."""

import sys
from typing import Any

from fastmcp import FastMCP
from fastmcp.tools import Tool
from mcp_types import ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from benchmarks.listening import listen


class Verdict(BaseModel):
    """How urgent a vulnerability is."""

    model_config = ConfigDict(frozen=True)

    cve_id: str = Field(description="The CVE identifier.")
    rank: int = Field(description="Its place, 1 is first.")
    score: float = Field(description="0 to 100.")
    kev: bool = Field(description="Whether it is known to be exploited.")
    severity: str = Field(description="The label of its CVSS score.")
    reasons: tuple[str, ...] = Field(description="What the score is made of.")


async def verdict(cve_id: str = "CVE-2021-44228") -> Verdict:
    """How urgent one vulnerability is: its rank and score among all that are ranked today, and why."""
    reasons = ("known to be exploited", "likely to be exploited soon", "listed lately")
    return Verdict(cve_id=cve_id, rank=1, score=98.25, kev=True, severity="CRITICAL", reasons=reasons)


def server(count: int) -> FastMCP[Any]:
    """A server whose first tool is `verdict`; the others are the same under other names."""
    mcp: FastMCP[Any] = FastMCP(f"Verdicts {count}", instructions="Says how urgent vulnerabilities are.")
    for number in range(count):
        name = "verdict" if number == 0 else f"verdict_{number}"
        mcp.add_tool(Tool.from_function(verdict, name=name, annotations=ToolAnnotations(read_only_hint=True)))

    @mcp.custom_route("/healthz", methods=["GET"])
    async def well(request: Request) -> Response:
        return PlainTextResponse("ok")

    return mcp


if __name__ == "__main__":
    listen(server(int(sys.argv[2])).http_app(path="/mcp", stateless_http=True), port=int(sys.argv[1]))
