"""Stock OAuth clients over real HTTP: from a bare URL to a paid tool's answer, through the page, and out again with the key."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import anyio
import pytest
from clients.browser import allow, answer_in
from clients.recording import recording
from clients.test_clients import MCP1, SCRIPT
from fastmcp import Client
from fastmcp.client.auth import OAuth
from mcp.client.auth import AuthorizationCodeResult
from pages.browsers import open_browser, open_page
from patience import patience
from serving import Served, serving

from campus.features.chain.listener import Answered, Asked, Listener
from tests import patient

CONFIG = """
[connect]
[products.cve]
scope = "cve"
price = "19"
term = "30 days"
[buildings.gateway]
path = "/"
[buildings.cve]
sample = true
"""
SHUT_OUT_SECONDS = 6.0
"""The promised 5 s, and a second for the machine."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("campus"), CONFIG) as campus:
        yield campus


class Headless(OAuth):
    """FastMCP's OAuth client, whose user types this key."""

    key = ""

    async def redirect_handler(self, authorization_url: str) -> None:
        self.found = answer_in(await anyio.to_thread.run_sync(allow, authorization_url, self.key))

    async def callback_handler(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=self.found["code"], state=self.found.get("state"), iss=self.found.get("iss"))


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore:Using in-memory token storage")
async def test_fastmcp_connects_refreshes_and_is_shut_out_when_the_key_is_revoked(served: Served) -> None:
    (issued,) = json.loads(served.command("key", "issue", "cve", "--json").stdout)
    auth = Headless()
    auth.key = issued["key"]
    async with Client(f"{served.url}/connect/cve/mcp", auth=auth) as client:
        assert "top_cves_today" in [tool.name for tool in await client.list_tools()]
        first = auth.context.current_tokens
        auth.context.token_expiry_time = 1
        answer = await client.call_tool("top_cves_today")
        assert answer.structured_content is not None
        assert answer.structured_content["count"] == 25
        assert auth.context.current_tokens != first
    token = auth.context.current_tokens.access_token
    served.command("key", "revoke", issued["id"])
    until = time.monotonic() + patience(SHUT_OUT_SECONDS)
    while (status := patient.get(f"{served.url}/connect/cve/mcp", headers={"Authorization": f"Bearer {token}"}).status_code) == 405:
        assert time.monotonic() < until
        await anyio.sleep(0.2)
    assert status == 401


def test_mcp_1_connects_and_refreshes(served: Served) -> None:
    if not MCP1.exists():
        pytest.skip(f"no virtual environment with mcp 1.x at {MCP1.parents[1]}; `make tests` makes it")
    script = Path(__file__).with_name("connect_with_mcp1.py")
    command = [MCP1, script, f"{served.url}/connect/cve/mcp", served.key("cve"), "top_cves_today"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert ("top_cves_today" in found["tools"], found["is_error"], found["refreshed"]) == (True, False, True)


@pytest.mark.parametrize("client", ["fastmcp", "mcp 1.x"])
def test_a_client_with_a_key_in_its_headers_asks_no_address_of_oauth(served: Served, client: str) -> None:
    key = served.key("cve")
    with recording(served.url) as recorder:
        url = f"{recorder.url}/cve/mcp"
        count = anyio.run(counted_by_fastmcp, url, key) if client == "fastmcp" else counted_by_mcp1(url, key)
    assert count == 25
    assert {one.path for one in recorder.asked} == {"/cve/mcp"}


async def counted_by_fastmcp(url: str, key: str) -> int:
    async with Client(url, auth=key) as client:
        return int((await client.call_tool("top_cves_today")).structured_content["count"])


def counted_by_mcp1(url: str, key: str) -> int:
    if not MCP1.exists():
        pytest.skip(f"no virtual environment with mcp 1.x at {MCP1.parents[1]}; `make tests` makes it")
    given = json.dumps([{"url": url, "key": key, "calls": [["top_cves_today", {}]]}])
    ran = subprocess.run([MCP1, SCRIPT], input=given, capture_output=True, text=True, timeout=patience(60), check=True)
    return int(json.loads(ran.stdout)[0]["results"][0]["structured"]["count"])


def test_in_chromium_the_form_leads_back_to_the_client(served: Served) -> None:
    received: list[str] = []

    def answer(request: Asked) -> Answered:
        received.append(request.path)
        return Answered(200, {"connected": True})

    listener = Listener(answer, keep_alive=False)
    listener.open()
    callback = f"{listener.url}/callback"
    registered = patient.post(f"{served.url}/connect/register", json={"client_name": "A program", "redirect_uris": [callback]})
    request = {
        "response_type": "code",
        "client_id": registered.json()["client_id"],
        "redirect_uri": callback,
        "code_challenge": "c" * 43,
        "resource": f"{served.url}/connect/cve/mcp",
    }
    with open_browser() as browser, open_page(browser) as page:
        page.goto(f"{served.url}/connect/authorize?{urlencode(request)}")
        assert "“A program”" in page.get_by_role("heading", level=1).inner_text()
        page.get_by_label("Your key").fill(served.key("cve"))
        page.get_by_role("button", name="Allow").click()
        page.wait_for_url(f"{callback}?*")
    listener.close()
    (path,) = (path for path in received if path.startswith("/callback"))
    assert answer_in(path)["code"].startswith("campus_code_")
    assert answer_in(path)["iss"] == f"{served.url}/connect"
