"""The checks that isitagentready.com and Glama publish, as far as they can be made here, with a score for each.

isitagentready.com describes each check in a skill of its own (/.well-known/agent-skills/<check>/SKILL.md). Glama grades tools by their
definitions (glama.ai/mcp, the Score page of each server); what it has a model judge is left out.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import anyio
import httpx
from contract.served_campus import ServedCampus
from fastmcp import Client

from tests import patient

ROOT = Path(__file__).parents[3]
SERVERS = ("/mcp", "/cve/mcp", "/recorder/mcp", "/checkout/mcp")
ROBOTS = ("GPTBot", "ClaudeBot", "Google-Extended", "PerplexityBot", "CCBot")
HINTS = ("read_only_hint", "destructive_hint", "idempotent_hint", "open_world_hint")
VERBS = "a verb_noun or noun name in lower case with underscores"
ON_PURPOSE = {
    "OAuth discovery, OAuth protected resource": "at the root they must be 404: clients with a key would leave it for a sign-in",
    "A2A agent card, WebMCP, Web Bot Auth, UCP, ACP, AP2": "this service is no agent, sends no bots, and has no shop's checkout",
}
Check = Callable[[httpx.Client], bool]


def robots_txt(http: httpx.Client) -> bool:
    answer = http.get("/robots.txt")
    return answer.status_code == 200 and "text/plain" in answer.headers["content-type"] and "User-agent: *" in answer.text


def sitemap(http: httpx.Client) -> bool:
    found = re.search(r"^Sitemap: (\S+)$", http.get("/robots.txt").text, re.MULTILINE)
    answer = http.get(found[1] if found else "/sitemap.xml")
    return answer.status_code == 200 and ElementTree.fromstring(answer.text).tag.endswith(("urlset", "sitemapindex"))


def link_headers(http: httpx.Client) -> bool:
    links = http.get("/").headers.get("link", "")
    return all(f'rel="{name}"' in links for name in ("api-catalog", "service-desc", "service-doc", "describedby"))


def markdown(http: httpx.Client) -> bool:
    answer = http.get("/", headers={"Accept": "text/markdown"})
    return "text/markdown" in answer.headers["content-type"] and answer.text.startswith("# ")


def ai_rules(http: httpx.Client) -> bool:
    robots = http.get("/robots.txt").text
    return all(f"User-agent: {name}\n" in robots for name in ROBOTS)


def content_signals(http: httpx.Client) -> bool:
    found = re.search(r"^Content-Signal: (.+)$", http.get("/robots.txt").text, re.MULTILINE)
    return found is not None and {"search", "ai-input", "ai-train"} == {part.strip().partition("=")[0] for part in found[1].split(",")}


def api_catalog(http: httpx.Client) -> bool:
    answer = http.get("/.well-known/api-catalog", headers={"Accept": "application/linkset+json"})
    apis = [one for one in answer.json()["linkset"] if "item" not in one]
    needed = {"anchor", "service-desc", "service-doc", "status"}
    return (
        answer.headers["content-type"].startswith("application/linkset+json") and all(needed <= one.keys() for one in apis) and bool(apis)
    )


def server_card(http: httpx.Client) -> bool:
    card = http.get("/.well-known/mcp/server-card.json").json()
    return bool(card["serverInfo"]["name"] and card["serverInfo"]["version"] and card["transport"]["endpoint"] and card["capabilities"])


def agent_skills(http: httpx.Client) -> bool:
    index = http.get("/.well-known/agent-skills/index.json").json()
    return all(http.get(one["url"]).status_code == 200 for one in index["skills"]) and "0.2.0" in index["$schema"]


def llms_txt(http: httpx.Client) -> bool:
    return bool(re.match(r"# .+\n\n> .+\n", http.get("/llms.txt").text))


def x402(http: httpx.Client) -> bool:
    refused = http.get("/v1/brief/today")
    return refused.status_code == 402 and "payment-required" in refused.headers


AGENT_READY: Mapping[str, Check] = {
    "robots.txt": robots_txt,
    "Sitemap": sitemap,
    "Link headers": link_headers,
    "Markdown negotiation": markdown,
    "AI bot rules": ai_rules,
    "Content signals": content_signals,
    "API catalog": api_catalog,
    "MCP server card": server_card,
    "Agent skills": agent_skills,
    "llms.txt": llms_txt,
    "x402": x402,
}


def tool_faults(tool: Any) -> Iterator[str]:
    """What Glama would find missing in a tool's definition."""
    if not tool.title:
        yield "no title"
    if len(tool.description or "") < 60:
        yield "no description that says when to use it"
    if tool.annotations is None or any(getattr(tool.annotations, hint) is None for hint in HINTS):
        yield "an annotation is missing"
    if not re.fullmatch(r"[a-z]+(_[a-z0-9]+)*", tool.name):
        yield f"its name is not {VERBS}"
    for name, schema in tool.input_schema.get("properties", {}).items():
        if not schema.get("description"):
            yield f"its argument {name} is not described"
    if not tool.output_schema:
        yield "no output schema"


def check_readiness(campus: ServedCampus) -> list[str]:
    """Make all checks, print the scores, return what failed."""
    faults = []
    with patient.Client(base_url=campus.url) as http:
        passed = {name: passes(check, http) for name, check in AGENT_READY.items()}
    faults += [f"isitagentready: {name}" for name, good in passed.items() if not good]
    print(f"\nisitagentready: {sum(passed.values())} of {len(passed)} checks pass")
    for name, why in ON_PURPOSE.items():
        print(f"  left out: {name}; {why}")
    tools = {path: anyio.run(tools_at, f"{campus.url}{path}") for path in SERVERS}
    graded = [(path, tool.name, list(tool_faults(tool))) for path, listed in tools.items() for tool in listed]
    good = sum(not found for *_, found in graded)
    print(f"Glama: {good} of {len(graded)} tool definitions are complete ({good / len(graded):.0%})")
    faults += [f"Glama: {name} at {path}: {', '.join(found)}" for path, name, found in graded if found]
    faults += [f"Glama: the repository has no {name}" for name in ("README.md", "LICENSE", "CHANGELOG.md") if not (ROOT / name).is_file()]
    return faults


def passes(check: Check, http: httpx.Client) -> bool:
    """False too where an answer cannot be read."""
    try:
        return check(http)
    except (httpx.HTTPError, KeyError, json.JSONDecodeError, ElementTree.ParseError):
        return False


async def tools_at(url: str) -> list[Any]:
    async with Client(url) as client:
        return list(await client.list_tools())
