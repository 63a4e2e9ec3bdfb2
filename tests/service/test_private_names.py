"""What campus does when an upgrade of a library has taken away a name that the library does not document."""

import re
import shutil
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
TAKEN = [
    ("aiosqlite", "_execute", UNSHIELDED),
    ("aiosqlite", "_connect", UNSHIELDED),
    ("aiosqlite", "_thread", ""),
    ("aiosqlite", "_running", ""),
    ("uvicorn", "HttpToolsProtocol", OWN_PROTOCOL),
    ("uvicorn", "_start_asgi_task", OWN_PROTOCOL),
    ("uvicorn", "message_event", OWN_PROTOCOL),
    ("uvicorn", "response_complete", OWN_PROTOCOL),
]


UNKNOWN = "is not one that campus knows"
CONTEXT = (
    "_current_context _current_server fastmcp_request_ctx set_transport bind_request_context FastMCPRequestContext _is_client_tool_call"
)
"""The names of twins/fastmcp.py, but for `set_http_request`: something must tell FastMCP of the request."""
OBJECTS = "_lifespan_result _shared_context_snapshot _mask_error_details _raw_mcp_result _rebind_prefab_tool_names _srctx"


def without(package: str, name: str, folder: Path) -> str:
    """A folder for PYTHONPATH with a copy of the package that has other names for these."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    copy = folder / "copies" / package
    shutil.copytree(Path(spec.origin).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    count = 0
    for file in copy.rglob("*.py"):
        text, found = re.subn(rf"\b({'|'.join(name.split())})\b", r"\1_of_now", file.read_text(encoding="utf-8"))
        file.write_text(text, encoding="utf-8")
        count += found
    assert count, f"{package} has no {name}: what campus does without it needs no test"
    return str(copy.parent)


@pytest.mark.parametrize(("package", "name", "said"), TAKEN, ids=[f"{package}.{name}" for package, name, _ in TAKEN])
async def test_without_a_private_name_of_a_library_campus_serves_and_says_what_it_lacks(
    tmp_path: Path, package: str, name: str, said: str
) -> None:
    with serving(tmp_path, CONFIG, environ={"PYTHONPATH": without(package, name, tmp_path)}, fresh=True) as campus:
        assert patient.get(f"{campus.url}/v1/gateway/list_buildings").json()["count"] == 2
        made = patient.post(f"{campus.url}/v1/recorder/monitors", json=MONITOR)
        async with Client(f"{campus.url}/recorder/mcp") as client:
            beaten = await client.call_tool("heartbeat", {name: made.json()[name] for name in ("monitor_id", "secret")})
    assert (made.status_code, beaten.is_error) == (200, False), made.text
    assert said in campus.log


@pytest.mark.parametrize("names", ["fastmcp_request_ctx", CONTEXT, OBJECTS], ids=["one", "context", "objects"])
async def test_without_names_of_fastmcp_its_server_answers_in_both_frames_and_campus_check_says_so(tmp_path: Path, names: str) -> None:
    with serving(tmp_path, CONFIG, environ={"PYTHONPATH": without("fastmcp", names, tmp_path)}, fresh=True) as campus:
        made = patient.post(f"{campus.url}/v1/recorder/monitors", json=MONITOR)
        assert patient.get(f"{campus.url}/v1/gateway/list_buildings").json()["count"] == 2
        async with Client(f"{campus.url}/recorder/mcp") as client:
            beaten = await client.call_tool("heartbeat", {name: made.json()[name] for name in ("monitor_id", "secret")})
        checks = patient.get(f"{campus.admin}/readyz").json()["checks"]
        found = campus.command("check")
    assert (made.status_code, beaten.is_error) == (200, False), made.text
    assert (found.returncode, UNKNOWN in found.stdout) == (0, True), found.stdout + found.stderr
    assert UNKNOWN in checks["FastMCP"][0]
