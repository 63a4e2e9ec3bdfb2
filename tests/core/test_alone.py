"""The core serves a building without any feature: none is installed, and none can be imported; and the first event imports nothing."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALONE = """
import sys
from importlib import metadata

installed = metadata.entry_points
metadata.entry_points = lambda **wanted: () if wanted.get("group") == "campus.features" else installed(**wanted)
sys.modules["campus.features"] = None

import anyio
from fastmcp import FastMCP

from campus import access, free
from campus.testing import open_campus

mcp = FastMCP("Tides", instructions="Knows the tides.")


@mcp.tool(annotations={"readOnlyHint": True}, meta=free())
def today() -> str:
    "The tide of today."
    return "high"


@mcp.tool(annotations={"readOnlyHint": True}, meta=access())
def tomorrow(place: str) -> str:
    "The tide of tomorrow."
    return f"low at {place}"


async def served(frame):
    async with open_campus(tides=mcp, frame=frame) as campus:
        token = await campus.key("tides")
        calls = [await campus.call("today"), await campus.call("tomorrow", place="Ems")]
        calls += [await campus.call("tomorrow", key=token, place="Ems")]
        paths = ("/healthz", "/tides/openapi.json", "/v1/tides", "/errors", "/nothing")
        pages = [(await campus.http.get(path)).status_code for path in paths]
        checked = await campus.service.ask("check")
        answers = [(one.status, one.data) if one.status == 200 else one.status for one in calls]
        print(frame, answers, pages, checked["tides"])
        if frame == "mcp":
            before = set(sys.modules)
            await campus.service.warm()
            known = set(sys.modules)
            campus.service.metrics.add("tides", "floods", {"place": "Ems"})
            print("prometheus_client" in known - before, set(sys.modules) - known)


for frame in ("http", "mcp"):
    anyio.run(served, frame)
print(sorted(name for name in sys.modules if name.startswith("campus.features.")))
"""


def test_the_core_serves_over_http_and_mcp_with_every_feature_hidden_and_once_it_is_warm_imports_nothing_for_an_event() -> None:
    ran = subprocess.run([sys.executable, "-c", ALONE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        *(f"{frame} [(200, 'high'), 402, (200, 'low at Ems')] [200, 200, 200, 200, 404] []" for frame in ("http", "mcp")),
        "True set()",
        "[]",
    ]
