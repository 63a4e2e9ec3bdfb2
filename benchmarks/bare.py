"""The baseline of MCP: a bare FastMCP server with as many tools as asked. `bare PORT COUNT`; campus opens `server` as it is."""

import sys
from datetime import date
from typing import Any

from fastmcp import FastMCP
from fastmcp.tools import Tool
from mcp_types import ToolAnnotations
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from benchmarks.listening import listen
from buildings.cve.models import Factors, Verdict

ANSWER = Verdict(
    ok=True,
    day=date(2026, 8, 21),
    sample=False,
    found=True,
    stale=False,
    of=360_145,
    kev_removed_on=None,
    rank=1,
    cve_id="CVE-2021-44228",
    score=50.25,
    kev=True,
    kev_date_added=date(2021, 12, 10),
    kev_due_date=date(2021, 12, 24),
    ransomware=True,
    epss=0.97,
    epss_percentile=0.999,
    severity="CRITICAL",
    severity_source="nvd",
    cvss=None,
    patch_status="unknown",
    patch_evidence=None,
    vendor="Apache",
    product="Log4j2",
    factors=Factors(kev=25.0, epss=24.25, recency=1.0),
)


async def verdict(cve_id: str = ANSWER.cve_id) -> Verdict:
    """How urgent one vulnerability is: its rank and score among all that are ranked today, and why."""
    return ANSWER.model_copy(update={"cve_id": cve_id})


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
