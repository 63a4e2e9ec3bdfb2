"""What crawlers and agents read of the whole service: robots.txt, sitemap.xml, llms.txt, a skill, the API catalog, security.txt. Pure."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from xml.sax.saxutils import escape

from campus.config import Config
from campus.directory import BuildingEntry, Directory, ToolEntry
from campus.features.discovery.feature import DiscoveryTable

AI_CRAWLERS = (
    *("Amazonbot", "Applebot-Extended", "Bytespider", "CCBot", "ChatGPT-User", "Claude-SearchBot", "Claude-User", "Claude-Web"),
    *("ClaudeBot", "GPTBot", "Google-Extended", "Meta-ExternalAgent", "OAI-SearchBot", "PerplexityBot", "anthropic-ai", "cohere-ai"),
)
"""Robots that obey the group with their own name, if there is one, and then ignore `*`."""
PRIVATE_PATHS = ("/keys", "/connect/")
"""Pages about one visitor."""
SKILL = "call-its-tools"
SKILLS_SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
SKILL_PATH = f"/.well-known/agent-skills/{SKILL}/SKILL.md"
LINKSET_TYPE = 'application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727"'
EXPIRES_AFTER_MONTHS = 6


def robots_txt(url: str, table: DiscoveryTable) -> str:
    """One group of rules for all robots, which also names those of AI companies, and a Content-Signal: how the content may be used."""
    signals = {"search": table.indexed, "ai-input": table.indexed, "ai-train": table.indexed and table.ai_training}
    said = ", ".join(f"{name}={'yes' if allowed else 'no'}" for name, allowed in signals.items())
    rules = (
        [*(f"Disallow: {path}" for path in PRIVATE_PATHS), "Allow: /"] if table.indexed else ["Disallow: /"]
    )  # old readers apply the first rule that matches
    agents = [f"User-agent: {name}" for name in ("*", *AI_CRAWLERS)]
    sitemap = ["", f"Sitemap: {url}/sitemap.xml"] if table.indexed else []
    return _lines([*agents, f"Content-Signal: {said}", *rules, *sitemap])


def sitemap_xml(url: str, paths: Sequence[str]) -> str:
    locations = [f"<url><loc>{escape(url + path)}</loc></url>" for path in paths]
    start = '<?xml version="1.0" encoding="UTF-8"?>'
    return _lines([start, '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">', *locations, "</urlset>"])


def pages_in(directory: Directory, labelled: Sequence[str], *, has_start: bool) -> list[str]:
    """The paths of a sitemap: start page, list of tools, the buildings' pages that are in the navigation, each server, each tool."""
    entries = directory.buildings()
    tools = [f"/tools/{one.name}/{tool.name}" for one in entries for tool in one.tools]
    return [*(["/"] if has_start else []), "/docs/api", *labelled, *(f"/v1/{one.name}" for one in entries), *tools]


def llms_txt(directory: Directory, *, connect: str | None) -> str:
    """The service for a language model (llmstxt.org): what there is, what it costs, and where everything else is described."""
    entries = directory.buildings()
    url = directory.url
    free = sum(tool.free for one in entries for tool in one.tools)
    lines = [
        f"# {_plain(directory.name)}",
        "",
        f"> {sum(len(one.tools) for one in entries)} tools on {len(entries)} MCP servers, {free} of them free. Each tool also answers over"
        " HTTP. There are no accounts: the others need a key or, where offered, a payment per call.",
        "",
        "Every page below returns Markdown with `Accept: text/markdown`; that of a tool lists its arguments, where each is sent, and its"
        " result. Over HTTP, GET and DELETE take arguments in the query string, other methods in a JSON object; over MCP the tool has the"
        " same name and arguments. A tool that is called without access answers 402 and says what opens it, at which price, and where to"
        " buy it. A key is sent as `Authorization: Bearer KEY`.",
        "",
        "## Servers",
        "",
        *(f"- [{_plain(one.title)}]({one.description}): {_plain(one.about)} MCP: {one.mcp}" for one in entries),
    ]
    for one in entries:
        lines += ["", f"## Tools of {one.name}", "", *(_tool_line(one, tool, url) for tool in one.tools)]
    connecting = [f"- [Add the servers to a client]({connect}): commands, files and links for each MCP client"] if connect else []
    more = [
        *connecting,
        f"- [All tools]({url}/docs/api): each with a form that calls it",
        f"- [OpenAPI]({url}/v1/openapi.json): every HTTP route",
        *([f"- [Prices per call]({url}/.well-known/x402): the payment terms of every route, by x402"] if directory.payment else []),
        f"- [Refusals]({url}/errors): the codes of all problems, with what to do",
        f"- [AI catalog]({url}/.well-known/ai-catalog.json): the card of every MCP server",
    ]
    return _lines([*lines, "", "## More", "", *more])


def _tool_line(building: BuildingEntry, tool: ToolEntry, url: str) -> str:
    routes = " or ".join(tool.http)
    return f"- [{tool.name}]({url}/tools/{building.name}/{tool.name}): {_plain(tool.summary)} Access: {tool.tier}. {routes}"


def skill_description(directory: Directory) -> str:
    servers = "; ".join(one.title for one in directory.buildings())
    about = f"Calls the tools of {directory.name} over MCP or HTTP: {servers}. Use it to find a tool, to call it, and after a refusal."
    return _plain(about)[:1000]


def skill_md(directory: Directory, *, connect: str | None) -> str:
    url = directory.url
    guide = [f"If your client has no MCP server of this service yet, {connect} has the text for each client.", ""] if connect else []
    return _lines(
        [
            *("---", f"name: {SKILL}", f"description: {json.dumps(skill_description(directory), ensure_ascii=False)}", "---", ""),
            f"# Calling the tools of {_plain(directory.name)}",
            "",
            f"1. Read {url}/llms.txt: every tool with what it does, what it needs, and its HTTP route.",
            "2. Call a free tool first, over MCP or with a plain GET or POST. No account is needed.",
            "3. A tool that is not free answers 402 with `unlock`: the keys that open it, their prices, and where they are sold. Ask your"
            " user before you buy anything.",
            "4. Send a key as `Authorization: Bearer KEY`, from the environment or from your client's configuration. Never write it into a"
            " file, a log or an answer.",
            f"5. A refusal is a problem (RFC 9457) with a `code`, which {url}/errors/CODE explains. After 429 or 503 wait for Retry-After.",
            "",
            *guide,
            *("MCP servers (streamable HTTP):", ""),
            *(f"- {one.name}: {one.mcp}" for one in directory.buildings()),
        ]
    )


def skills_index(directory: Directory, skill: str) -> dict[str, Any]:
    digest = f"sha256:{sha256(skill.encode()).hexdigest()}"
    entry = {"name": SKILL, "type": "skill-md", "description": skill_description(directory), "url": SKILL_PATH, "digest": digest}
    return {"$schema": SKILLS_SCHEMA, "skills": [entry]}


def api_catalog(directory: Directory) -> dict[str, Any]:
    """The API catalog (RFC 9727): for each building its OpenAPI document, its pages, its card and its health."""
    url = directory.url
    entries = directory.buildings()
    apis = [
        {
            "anchor": one.description,
            "service-desc": [{"href": one.openapi, "type": "application/vnd.oai.openapi+json;version=3.0"}],
            "service-doc": [{"href": f"{url}/docs/api#{one.name}", "type": "text/html"}],
            "service-meta": [{"href": f"{one.mcp}/server-card", "type": "application/mcp-server-card+json"}],
            "status": [{"href": f"{url}/healthz", "type": "application/json"}],
        }
        for one in entries
    ]
    return {"linkset": [{"anchor": f"{url}/.well-known/api-catalog", "item": [{"href": one.description} for one in entries]}, *apis]}


def security_txt(config: Config, contact: str, now: datetime) -> str:
    """Where to report a vulnerability (RFC 9116). It expires on the first day of a month, so that it changes monthly."""
    months = now.year * 12 + now.month - 1 + EXPIRES_AFTER_MONTHS
    expires = datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)
    canonical = f"{config.url}/.well-known/security.txt"
    return _lines([f"Contact: {contact}", f"Expires: {expires:%Y-%m-%dT%H:%M:%SZ}", "Preferred-Languages: en", f"Canonical: {canonical}"])


def _plain(text: str) -> str:
    """Text of a building on one line, without the marks that would make it a heading, a link or HTML."""
    return " ".join(text.split()).translate({ord(mark): None for mark in "[]<>"}).lstrip("#>-* ")


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
