"""What registries, crawlers and agents find: documents that follow from the buildings, and whose every address answers."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from importlib.metadata import entry_points
from typing import Any, Literal
from urllib.robotparser import RobotFileParser
from xml.etree import ElementTree

import jsonschema
import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StreamableHttpTransport
from features.discovery_rules import AI_CATALOG, API_CATALOG, REGISTRY_SERVER, SERVER_CARD, SKILLS

from buildings.cve.building import building as cve
from buildings.gateway import building as gateway
from buildings.recorder import building as recorder
from campus import Building, free
from campus.config import config_model
from campus.errors import LoadError
from campus.testing import Clock, TestCampus, open_campus

pytestmark = pytest.mark.anyio
ORIGIN = "https://tools.campus.example"
PROOFS = {"registry_proof": "v=MCPv1; k=ed25519; p=YWJj", "glama_claim": "glama_claim_abc"}
SERVER = {"public_url": ORIGIN, "name": "Tools", "openapi": "cve"}
OAUTH = [
    *("/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource", "/.well-known/openid-configuration"),
    *("/.well-known/oauth-protected-resource/cve/mcp", "/cve/mcp/.well-known/openid-configuration"),
]
TEXTS = ["/robots.txt", "/sitemap.xml", "/llms.txt", "/.well-known/security.txt", "/.well-known/agent-skills/call-its-tools/SKILL.md"]
JSONS = ["/.well-known/api-catalog", "/.well-known/ai-catalog.json", "/.well-known/agent-skills/index.json", "/.well-known/glama.json"]
OF_SERVERS = [f"{path}/server-card" for path in ("/mcp", "/cve/mcp", "/recorder/mcp")] + ["/.well-known/mcp/server-card.json"]
FOR_REGISTRY = [f"/{name}/server.json" for name in ("gateway", "cve", "recorder")]
OPENAPI = ["/openapi.json", "/v1/openapi.json", "/cve/openapi.json", "/.well-known/x402"]
DOCUMENTS = [*TEXTS, *JSONS, *OF_SERVERS, *FOR_REGISTRY, *OPENAPI, "/.well-known/mcp-registry-auth"]


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
async def campus() -> AsyncIterator[TestCampus]:
    tables = {
        "server": SERVER,
        "discovery": PROOFS,
        "seller": {"contact": "mailto:security@campus.example"},
        "connect": {},
        "buildings": {"gateway": {"path": "/"}, "cve": {"sample": True}, "recorder": {}},
    }
    async with open_campus(gateway=gateway, cve=cve, recorder=recorder, tables=tables) as opened:
        opened.http.base_url = ORIGIN
        yield opened


async def read(campus: TestCampus, path: str, **headers: str) -> Any:
    answer = await campus.http.get(path, headers=headers)
    assert answer.status_code == 200, (path, answer.text)
    return answer.json()


async def test_a_document_is_the_same_for_get_and_head_and_is_sent_once_to_a_caller_that_keeps_it(campus: TestCampus) -> None:
    for path in DOCUMENTS:
        answer, head = await campus.http.get(path), await campus.http.head(path)
        assert answer.status_code == head.status_code == 200, path
        of_head, of_answer = ({**one.headers, "x-request-id": ""} for one in (head, answer))
        assert (of_head, head.content) == (of_answer, b""), path
        assert re.fullmatch(r"public, max-age=(300|3600)", answer.headers["cache-control"]), path
        assert answer.headers["access-control-allow-origin"] == "*", path
        again = await campus.http.get(path, headers={"If-None-Match": f'"other", W/{answer.headers["etag"]}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", answer.headers["etag"]), path
        assert (await campus.http.get(path, headers={"If-None-Match": '"other"'})).content == answer.content, path
        refused = await campus.http.post(path, json={})
        assert (refused.status_code, refused.headers["allow"], refused.json()["code"]) == (405, "GET, HEAD", "method_not_allowed"), path
        assert "oauth" not in answer.text.lower(), path


async def test_no_address_of_oauth_is_served_beside_those_of_connect(campus: TestCampus) -> None:
    for path in OAUTH:
        for accept in ("application/json", "text/html", "text/markdown"):
            assert (await campus.http.get(path, headers={"Accept": accept})).status_code == 404, (path, accept)
        assert (await campus.http.get(path)).headers["content-type"] == "application/problem+json", path


async def test_chat_apps_are_sent_to_the_address_where_a_key_is_entered_and_no_text_names_oauth(campus: TestCampus) -> None:
    clients = {one["id"]: one for one in (await read(campus, "/connect"))["clients"]}
    for name in ("claude-ai", "claude-desktop", "chatgpt"):
        assert f"{ORIGIN}/connect/cve/mcp" in clients[name]["with_key"]["text"]
    for path in ("/", "/connect", "/docs/api", "/v1/cve", "/v1/gateway/how_to_connect"):
        assert "oauth" not in (await campus.http.get(path, headers={"Accept": "text/html"})).text.lower(), path


async def test_a_servers_card_and_server_json_follow_the_published_rules_and_agree_with_the_server(campus: TestCampus) -> None:
    for name, path in (("gateway", "/mcp"), ("cve", "/cve/mcp"), ("recorder", "/recorder/mcp")):
        card, for_registry = await read(campus, f"{path}/server-card"), await read(campus, f"/{name}/server.json")
        jsonschema.validate(card, SERVER_CARD)
        jsonschema.validate(for_registry, REGISTRY_SERVER)
        assert (await campus.http.get(f"{path}/server-card")).headers["content-type"] == "application/mcp-server-card+json"
        assert card["name"] == for_registry["name"] == f"example.campus.tools/{name}"
        assert card["remotes"][0]["url"] == for_registry["remotes"][0]["url"] == f"{ORIGIN}{path}"
        assert ("headers" in card["remotes"][0]) == (name != "gateway")
        async with Client(StreamableHttpTransport(f"{ORIGIN}{path}", httpx_client_factory=campus._client)) as client:
            info = client.server_info
        assert info is not None
        assert (info.name, info.version, info.website_url) == (card["title"], card["version"], card["websiteUrl"])
        assert [icon.src for icon in info.icons or ()] == [card["icons"][0]["src"]]


async def test_what_has_no_https_address_is_left_out_of_server_json() -> None:
    async with open_campus(gateway=gateway) as campus:
        card, for_registry = await read(campus, "/gateway/mcp/server-card"), await read(campus, "/gateway/server.json")
    jsonschema.validate(card, SERVER_CARD)
    assert not {"websiteUrl", "icons"} & for_registry.keys()


async def test_the_catalogs_and_the_index_follow_the_published_rules_and_lead_to_every_building(campus: TestCampus) -> None:
    catalog, apis = await read(campus, "/.well-known/ai-catalog.json"), await read(campus, "/.well-known/api-catalog")
    jsonschema.validate(catalog, AI_CATALOG)
    jsonschema.validate(apis, API_CATALOG)
    assert [one["url"] for one in catalog["entries"]] == [f"{ORIGIN}{path}" for path in OF_SERVERS[:3]]
    assert [one["anchor"] for one in apis["linkset"][1:]] == [f"{ORIGIN}/v1/{name}" for name in ("gateway", "cve", "recorder")]
    assert {"service-desc", "service-doc", "status"} <= apis["linkset"][1].keys()
    linkset = await campus.http.head("/.well-known/api-catalog")
    assert linkset.headers["content-type"].startswith("application/linkset+json")
    assert 'rel="api-catalog"' in linkset.headers["link"]
    index = await read(campus, "/.well-known/agent-skills/index.json")
    jsonschema.validate(index, SKILLS)
    skill = await campus.http.get(index["skills"][0]["url"])
    assert index["skills"][0]["digest"] == f"sha256:{sha256(skill.content).hexdigest()}"
    assert skill.text.startswith(f"---\nname: {index['skills'][0]['name']}\n")


def addresses_in(text: str) -> set[str]:
    return {address.rstrip(".,;:`") for address in re.findall(rf"{re.escape(ORIGIN)}[^\s<>\"')]*", text)}


async def test_every_address_that_a_document_names_answers(campus: TestCampus) -> None:
    named: set[str] = set()
    for path in [*TEXTS, *JSONS, *OF_SERVERS, *FOR_REGISTRY]:
        named |= addresses_in((await campus.http.get(path)).text)
    header = (await campus.http.get("/", headers={"Accept": "text/html"})).headers["link"]
    linked = re.findall(r'<([^>]+)>; rel="([a-z-]+)"', header)
    assert {rel for _, rel in linked} == {"api-catalog", "service-desc", "service-doc", "describedby", "ai-catalog"}
    named |= {f"{ORIGIN}{path}" for path, _ in linked}
    assert len(named) > 40
    endpoints = {f"{ORIGIN}{one.mcp_path}" for one in campus.service.plan.opened}
    for address in sorted(named - endpoints - {f"{ORIGIN}/errors/CODE"}):
        if "{" not in address and "/v1/recorder/" not in address:  # the recorder's routes need a monitor
            answer = await campus.http.get(address)
            is_there = answer.status_code in (200, 402, 405, 422) or answer.json()["code"] == "no_data_for_date"
            assert is_there, (address, answer.text)


async def test_llms_txt_lists_every_tool_with_what_it_costs(campus: TestCampus) -> None:
    text = (await campus.http.get("/llms.txt")).text
    assert re.match(r"# Tools\n\n> \d+ tools on 3 MCP servers", text)
    for one in campus.service.plan.directory.buildings():
        assert f"]({ORIGIN}/v1/{one.name}):" in text
        for tool in one.tools:
            assert f"- [{tool.name}]({ORIGIN}/tools/{one.name}/{tool.name}): " in text
            assert f"Access: {tool.tier}. {' or '.join(tool.http)}\n" in text
    assert "Prices per call" not in text  # this campus takes no payments


async def test_the_markdown_page_of_a_tool_has_what_its_first_call_needs(campus: TestCampus) -> None:
    for one in campus.service.plan.opened:
        for name, operation in one.operations.items():
            page = (await campus.http.get(f"/tools/{one.name}/{name}", headers={"Accept": "text/markdown"})).text
            arguments = page.partition("**Arguments**")[2].partition("\n#")[0]
            rows = {line.split("`")[1]: line for line in arguments.splitlines() if line.startswith("| `")}
            for parameter in operation.parameters:
                place, sent_as = operation.place_of(parameter.name, operation.methods[0])
                required = ", required" if parameter.required else ""
                where = place if sent_as == parameter.name else f"{place} as {sent_as}"
                assert f"{required} | {where} | " in rows[parameter.name], (name, parameter.name)
            curl = page.partition("curl -s ")[2].partition("\n")[0]
            assert not operation.route.any_of or f'"{operation.route.any_of[0]}": ' in curl, (name, curl)
    listed = (await campus.http.get("/docs/api", headers={"Accept": "text/markdown"})).text
    assert [line for line in listed.splitlines() if line.startswith("| ") and line.count(" |") != 3] == []


async def test_a_closed_page_tells_a_program_what_opens_it(campus: TestCampus) -> None:
    for path in ("/cve/watches", "/cve/report", "/recorder"):
        said = await read(campus, path)
        assert (said["ok"], said["signed_in"]) == (True, False), path
        assert "Send a key of scope" in said["detail"], path


async def test_a_hostile_title_is_one_line_of_text() -> None:
    mcp: FastMCP[Any] = FastMCP("# x](http://evil.example)\n## <b>y", instructions="\n\n> z\n- [a](b)\n```")

    @mcp.tool(annotations={"readOnlyHint": True}, meta=free())
    async def look() -> str:
        """\n# <script>alert(1)</script> [x](y)."""
        return ""

    async with open_campus(harm=Building(mcp)) as campus:
        text = (await campus.http.get("/llms.txt")).text
        skill = (await campus.http.get("/.well-known/agent-skills/call-its-tools/SKILL.md")).text
        card = await read(campus, "/harm/mcp/server-card")
    jsonschema.validate(card, SERVER_CARD)
    assert [line for line in text.splitlines() if line.startswith("#")] == ["# campus", "## Servers", "## Tools of harm", "## More"]
    assert "<" not in text
    assert skill.count("---\n") == 2


async def test_a_sitemap_has_the_pages_that_everybody_may_see_and_robots_txt_lets_crawlers_in(campus: TestCampus) -> None:
    sitemap = ElementTree.fromstring((await campus.http.get("/sitemap.xml")).text)
    found = [one.text or "" for one in sitemap.iter("{http://www.sitemaps.org/schemas/sitemap/0.9}loc")]
    assert {f"{ORIGIN}{path}" for path in ("/", "/docs/api", "/connect", "/cve", "/tools/cve/brief_teaser", "/v1/cve")} <= set(found)
    robots = (await campus.http.get("/robots.txt")).text
    rules = RobotFileParser()
    rules.parse(robots.splitlines())
    assert rules.site_maps() == [f"{ORIGIN}/sitemap.xml"]
    for agent in ("Googlebot", "GPTBot", "ClaudeBot"):
        assert all(rules.can_fetch(agent, address) for address in found)
        assert not rules.can_fetch(agent, f"{ORIGIN}/keys")
        assert not rules.can_fetch(agent, f"{ORIGIN}/connect/authorize")
    assert "Content-Signal: search=yes, ai-input=yes, ai-train=no\n" in robots


async def test_the_operator_says_what_crawlers_may_do() -> None:
    for table, signal, fetched in (({"indexed": False}, "search=no", False), ({"ai_training": True}, "ai-train=yes", True)):
        async with open_campus(gateway=gateway, tables={"discovery": table}) as campus:
            robots = (await campus.http.get("/robots.txt")).text
        rules = RobotFileParser()
        rules.parse(robots.splitlines())
        assert signal in robots
        assert rules.can_fetch("GPTBot", "http://campus.test/docs/api") is fetched
        assert (rules.site_maps() is not None) is fetched


async def test_security_txt_names_the_operators_contact_and_never_expires_while_it_is_served() -> None:
    clock = Clock(datetime(2026, 8, 31, tzinfo=UTC))
    async with open_campus(gateway=gateway, clock=clock, tables={"seller": {"contact": "https://campus.example/report"}}) as campus:
        for _ in range(20):
            text = (await campus.http.get("/.well-known/security.txt")).text
            fields = dict(line.split(": ", 1) for line in text.splitlines())
            assert fields["Contact"] == "https://campus.example/report"
            left = datetime.fromisoformat(fields["Expires"]) - clock()
            assert timedelta(days=120) < left < timedelta(days=366)
            assert (await campus.http.get("/security.txt")).text == text
            clock.move(timedelta(days=31))
    async with open_campus(gateway=gateway) as campus:
        for path in ("/.well-known/security.txt", "/.well-known/mcp-registry-auth", "/.well-known/glama.json"):
            assert (await campus.http.get(path)).status_code == 404


def test_a_mistaken_key_is_refused() -> None:
    keys: tuple[tuple[dict[str, Any], str], ...] = (
        ({"contact": "security@campus.example"}, "mailto:"),
        ({"contact": "mailto:a@b\nContact: mailto:evil@c"}, "mailto:"),
        ({"contact": "http://campus.example"}, "https"),
        ({"registry_proof": "v=MCPv1; k=ed25519; p=a\nb"}, "registry_proof"),
        ({"glama_claim": "x"}, "glama_claim"),
        ({"namespace": "a/b"}, "namespace"),
        ({"crawl": True}, "crawl"),
    )
    for key, said in keys:
        with pytest.raises(ValueError, match=said):
            config_model().model_validate({"seller" if "contact" in key else "discovery": key})


async def test_no_route_of_a_building_takes_the_place_of_a_document() -> None:
    mcp: FastMCP[Any] = FastMCP("Shop")

    @mcp.tool(annotations={"readOnlyHint": True}, meta=free())
    async def look() -> str:
        """Look."""
        return ""

    for path in ("/robots.txt", "/llms.txt", "/shop/server.json", "/shop/mcp/server-card"):
        with pytest.raises(LoadError, match="is used by campus itself"):
            async with open_campus(shop=Building(mcp), tools={"look": {"route": f"GET {path}", "free": True}}):
                pass


async def test_a_building_a_problem_and_the_start_page_are_markdown_for_who_prefers_it(campus: TestCampus) -> None:
    for path, status, heading in (
        ("/", 200, "# Tools for you and for your agents"),
        ("/v1/cve", 200, "# Daily CVE"),
        ("/nothing", 404, "# There is nothing here"),
    ):
        answer = await campus.http.get(path, headers={"Accept": "text/markdown"})
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/markdown; charset=utf-8")
        assert heading in answer.text
        assert "accept" in answer.headers["vary"].lower()
    page = await campus.http.get("/v1/cve", headers={"Accept": "text/html"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    again = await campus.http.get("/v1/cve", headers={"Accept": "text/html", "If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert (await campus.http.get("/v1/cve", headers={"If-None-Match": page.headers["etag"]})).status_code == 200


HINTS = ("read_only_hint", "destructive_hint", "idempotent_hint", "open_world_hint")


async def test_every_tool_of_every_building_has_a_title_and_every_hint() -> None:
    for found in entry_points(group="campus.buildings"):
        for tool in await found.load().server.list_tools():
            assert tool.title, tool.name
            assert tool.annotations is not None
            assert all(getattr(tool.annotations, hint) is not None for hint in HINTS), tool.name
            assert not (tool.annotations.read_only_hint and tool.annotations.destructive_hint), tool.name
