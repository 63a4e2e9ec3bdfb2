"""A third party's distribution, and a public FastMCP server by configuration alone, served without a change to campus."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest
from fastmcp import Client
from fastmcp.client.auth import BearerAuth
from patience import patience
from serving import Served, serving

from tests import patient

pytestmark = pytest.mark.anyio
WATERS = [
    {"port": "brest", "day": "2026-01-02", "minute": 61, "metres": 6.2},
    {"port": "brest", "day": "2026-01-02", "minute": 430, "metres": 1.4},
]
CONFIG = """
openapi = "tides"
[products.tides]
scope = "tides"
price = "5"
term = "30 days"
[products.all]
scope = "all"
price = "29"
term = "30 days"
[buildings.gateway]
path = "/"
[buildings.cve]
kev_url = "file:///nowhere"
osv_ecosystems = []
kev_mirror_url = "file:///nowhere"
epss_url = "file:///nowhere"
nvd_url = "file:///nowhere"
[buildings.tides]
feed_url = "{feed}"
[buildings.wiki]
server = "wikipedia_mcp.server:create_server"
language = "de"
[buildings.wiki.tools]
"*" = {{ price = "0.001" }}
"test_*" = {{ hidden = true }}
get_article = {{ price = "0.002", route = "GET /v1/wiki/article/{{title}}" }}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The third party's distribution, installed next to the virtual environment."""
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    source = tmp_path_factory.mktemp("source")
    subprocess.run(["cp", "-r", Path(__file__).parent, source], check=True)
    subprocess.run([*pip, str(source / "third_party")], check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    return target


@pytest.fixture(scope="module")
def served(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("campus")
    (folder / "waters.json").write_text(json.dumps(WATERS))
    text = CONFIG.format(feed=(folder / "waters.json").as_uri())
    with serving(folder, text, environ={"PYTHONPATH": str(installed)}) as campus:
        yield campus


def test_the_directory_shows_both_and_no_price_that_cannot_be_paid(served: Served) -> None:
    buildings = {one["name"]: one for one in patient.get(f"{served.url}/v1/gateway/list_buildings").json()["buildings"]}
    assert list(buildings) == ["gateway", "cve", "tides", "wiki"]
    assert {tool["name"]: (tool["tier"], tool["price"]) for tool in buildings["tides"]["tools"]} == {
        "day_of": ("key", None),
        "ports": ("free", None),
    }
    assert buildings["tides"]["unlocked_by"] == ["tides", "all"]
    wiki = {tool["name"]: tool for tool in buildings["wiki"]["tools"]}
    assert (wiki["get_article"]["tier"], wiki["get_article"]["price"]) == ("key", None)
    assert wiki["get_article"]["http"] == [f"GET {served.url}/v1/wiki/article/{{title}}"]
    assert wiki["get_summary"]["tier"] == "key"
    assert "test_wikipedia_connectivity" not in wiki


@pytest.mark.parametrize("path", ["/llms.txt", "/sitemap.xml", "/.well-known/api-catalog", "/.well-known/ai-catalog.json", "/connect", "/"])
def test_every_document_for_machines_has_the_strangers_building(served: Served, path: str) -> None:
    text = patient.get(f"{served.url}{path}").text
    assert f"{served.url}/tides/mcp" in text or f"{served.url}/tools/tides/day_of" in text


def test_the_strangers_server_has_a_card_an_icon_and_a_server_json(served: Served) -> None:
    card = patient.get(f"{served.url}/tides/mcp/server-card").json()
    assert (card["title"], card["description"]) == ("Tide tables", "High and low water, by port and day, from the harbour's own list.")
    assert patient.get(card["icons"][0]["src"]).headers["content-type"] == "image/png"
    assert patient.get(f"{served.url}/tides/server.json").json()["remotes"][0]["headers"][0]["isSecret"] is True
    page = patient.get(f"{served.url}/v1/tides", headers={"Accept": "text/markdown"}).text
    assert page.startswith("[All tools](/docs/api)\n\n# Tide tables\n")


async def test_the_strangers_paid_tool_reads_what_its_job_stored(served: Served) -> None:
    ran = served.command("run", "tides.refresh")
    assert ran.returncode == 0, ran.stderr
    url = f"{served.url}/v1/tides/brest/2026-01-02"
    assert patient.get(url).status_code == 402
    key = served.key("tides")
    answer = patient.get(url, headers={"Authorization": f"Bearer {key}"}).json()
    assert answer == {
        "port": "brest",
        "day": "2026-01-02",
        "waters": [{"minute": one["minute"], "metres": one["metres"]} for one in WATERS],
    }
    async with Client(f"{served.url}/tides/mcp", auth=BearerAuth(key)) as client:
        result = await client.call_tool("day_of", {"port": "brest", "day": "2026-01-02"})
        assert result.structured_content == answer
    refusal = patient.get(f"{served.url}/v1/tides/brest/2030-01-01", headers={"Authorization": f"Bearer {key}"})
    assert (refusal.status_code, refusal.json()["code"]) == (404, "no_tides")


def test_the_strangers_service_sees_what_its_job_stored_in_another_process(served: Served) -> None:
    served.command("run", "tides.refresh")
    deadline = monotonic() + patience(20)
    while "brest" not in patient.get(f"{served.url}/v1/tides/ports").text:
        assert monotonic() < deadline
        sleep(0.05)


def test_the_strangers_page_and_check_are_asked(served: Served) -> None:
    served.command("run", "tides.refresh")
    page = patient.get(f"{served.url}/v1/tides/brest/board")
    assert page.text.splitlines() == ["2026-01-02   61 6.2", "2026-01-02  430 1.4"]
    assert "tides" in patient.get(f"{served.url}/readyz").json()["checks"]


def test_the_strangers_page_stands_in_the_layout_with_its_own_template_and_macro(served: Served) -> None:
    served.command("run", "tides.refresh")
    with patient.Client(base_url=served.url, headers={"Accept": "text/html"}) as browser:
        page = browser.get("/tides/brest")
        assert page.status_code == 200, page.text
        assert '<nav aria-label="Main">' in page.text
        assert '<span class="badge good" data-height>6.2 m</span>' in page.text
        assert '<svg class="sparkline"' in page.text
        token = re.search(r'name="form_token" value="(\w+)"', page.text)
        assert token is not None
        assert browser.post("/tides/brest", data={}).status_code == 403
        assert browser.post("/tides/brest", data={"form_token": token[1]}).text == "noted for brest"
        missing = browser.get("/tides/nowhere")
        assert (missing.status_code, missing.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert patient.get(f"{served.url}/tides/brest").json()["waters"][0] == {"minute": 61, "metres": 6.2}
    markdown = patient.get(f"{served.url}/tides/brest", headers={"Accept": "text/markdown"}).text
    rows = ["| Minute | Height |", "| --- | --- |", "| 61 | 6.2 m |", "| 430 | 1.4 m |"]
    assert markdown.splitlines() == ["# Tides of brest", "", "**Waters**", "", *rows]


async def test_the_public_server_is_paid_for_and_reached_by_both_frames(served: Served) -> None:
    key = served.key("all")
    for tool, path in (("get_coordinates", "/v1/wiki/get_coordinates"), ("get_article", None)):
        async with Client(f"{served.url}/wiki/mcp") as client:
            refused = await client.call_tool(tool, {"title": "Brest"}, raise_on_error=False)
            assert refused.structured_content is not None
            assert refused.structured_content["code"] == "access_required"
            assert "test_wikipedia_connectivity" not in [one.name for one in await client.list_tools()]
            hidden = await client.call_tool("test_wikipedia_connectivity", {}, raise_on_error=False)
            assert hidden.is_error
        if path:
            body = {"surplus": 1}
            answer = patient.post(f"{served.url}{path}", json=body, headers={"Authorization": f"Bearer {key}"})
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
        else:
            assert patient.get(f"{served.url}/v1/wiki/article/Brest").status_code == 402
