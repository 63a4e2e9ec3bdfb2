"""What campus does when an upgrade of a library has taken away a name that the library does not document."""

import re
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
from fastmcp import Client
from serving import serving

from tests import patient

pytestmark = pytest.mark.anyio

CONFIG = """
[buildings.gateway]
path = "/"
[buildings.recorder]
"""
MONITOR = {"name": "well", "alert_webhook": "https://example.com/alerts"}
UNSHIELDED = "cannot be shielded"
OWN_PROTOCOL = "its own protocol serves"
UNKNOWN = "is not one that campus knows"
CONTEXT = (
    "_current_context _current_server fastmcp_request_ctx set_transport bind_request_context FastMCPRequestContext _is_client_tool_call"
)
"""The names of twins/fastmcp.py, but for `set_http_request`: something must tell FastMCP of the request."""
OBJECTS = "_lifespan_result _shared_context_snapshot _mask_error_details _raw_mcp_result _rebind_prefab_tool_names _srctx"


TAKEN = {"fastmcp": f"{CONTEXT} {OBJECTS}", "aiosqlite": "_execute _thread _running", "uvicorn": "HttpToolsProtocol"}
"""What each package lacks. The libraries do not know each other; tests/lab/private_names.py takes less away at once."""


def without(taken: Mapping[str, str], folder: Path) -> str:
    for package, names in taken.items():
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        copy, count = folder / "copies" / package, 0
        shutil.copytree(Path(spec.origin).parent, copy)  # with what Python compiled of the files that stay
        for file in copy.rglob("*.py"):
            text, found = re.subn(rf"\b({'|'.join(names.split())})\b", r"\1_of_now", file.read_text(encoding="utf-8"))
            if found:
                file.write_text(text, encoding="utf-8")
                count += found
        assert count, f"{package} has no {names}: what campus does without it needs no test"
    return str(folder / "copies")


async def test_without_private_names_of_libraries_campus_answers_in_both_frames_and_says_what_it_lacks(tmp_path: Path) -> None:
    assert UNSHIELDED in await log_of_a_campus_without(TAKEN, tmp_path)


async def log_of_a_campus_without(taken: Mapping[str, str], folder: Path) -> str:
    with serving(folder, CONFIG, environ={"PYTHONPATH": without(taken, folder)}, fresh=True) as campus:
        made = patient.post(f"{campus.url}/v1/recorder/monitors", json=MONITOR)
        assert made.status_code == 200, made.text
        assert patient.get(f"{campus.url}/v1/gateway/list_buildings").json()["count"] == 2
        async with Client(f"{campus.url}/recorder/mcp") as client:
            beaten = await client.call_tool("heartbeat", {name: made.json()[name] for name in ("monitor_id", "secret")})
        assert not beaten.is_error
        assert UNKNOWN in patient.get(f"{campus.admin}/readyz").json()["checks"]["FastMCP"][0]
    assert OWN_PROTOCOL in campus.log
    return campus.log
