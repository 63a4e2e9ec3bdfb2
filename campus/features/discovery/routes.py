"""The routes of the documents for registries, crawlers and agents, and the Link header that leads to them from every page."""

from collections.abc import Awaitable, Collection, Mapping
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from campus.building import Building
from campus.catalog.plan import Plan
from campus.features.discovery.cards import CARD_TYPE, CATALOG_TYPE, ai_catalog, listings_of, server_card, server_json, site_card
from campus.features.discovery.crawlers import (
    LINKSET_TYPE,
    SKILL_PATH,
    api_catalog,
    llms_txt,
    pages_in,
    robots_txt,
    security_txt,
    sitemap_xml,
    skill_md,
    skills_index,
)
from campus.features.discovery.feature import DiscoveryTable
from campus.http.service_routes import Document
from campus.http_parts import HttpPart
from twins import ANY, RouteEntry

API_CATALOG = "/.well-known/api-catalog"
CONNECT = "/connect"
LINKS = ", ".join(
    [
        f'<{API_CATALOG}>; rel="api-catalog"; type="application/linkset+json"',
        '</v1/openapi.json>; rel="service-desc"; type="application/json"',
        '</docs/api>; rel="service-doc"; type="text/html"',
        '</llms.txt>; rel="describedby"; type="text/plain"',
        '</.well-known/ai-catalog.json>; rel="ai-catalog"; type="application/ai-catalog+json"',
    ]
)
"""The Link header of pages (RFC 8288, RFC 9727)."""
XML = "application/xml; charset=utf-8"
MARKDOWN = "text/markdown; charset=utf-8"


class Discovery(HttpPart):
    """The documents, made for the buildings that are open."""

    links = LINKS
    notices = True

    def routes(self, plan: Plan, servers: Mapping[str, ASGIApp]) -> Collection[RouteEntry]:
        """See HttpPart."""
        table = self.site.settings
        documents = {**_of_servers(plan, table), **_of_service(plan, table), **_of_operator(table)}
        entries = [document.route(path) for path, document in documents.items()]
        if (contact := plan.contact) is not None:

            def security(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
                made_anew = Document.text(lambda: security_txt(plan.config, contact, self.campus.core.now()))  # for it has a date
                return made_anew(scope, receive, send)

            paths = ("/.well-known/security.txt", "/security.txt")
            entries += [RouteEntry((ANY,), path, security, f"the document {path}") for path in paths]
        return entries


def _of_servers(plan: Plan, table: DiscoveryTable) -> Mapping[str, Document]:
    config = plan.config
    servers = listings_of(config, plan.opened, {one.name: one for one in plan.directory.buildings()}, namespace=table.namespace)
    documents: dict[str, Document] = {}
    for one, opened in zip(servers, plan.opened, strict=True):
        documents[f"{opened.mcp_path}/server-card"] = Document.json(partial(server_card, one), CARD_TYPE)
        documents[f"/{opened.name}/server.json"] = Document.json(partial(server_json, one))
    documents["/.well-known/ai-catalog.json"] = Document.json(lambda: ai_catalog(config, servers), CATALOG_TYPE)
    at_root = [one for one, opened in zip(servers, plan.opened, strict=True) if opened.loaded.table.path == "/"]
    if stands_for_all := [*at_root, *servers][:1]:
        documents["/.well-known/mcp/server-card.json"] = Document.json(partial(site_card, stands_for_all[0]))
    return documents


def _of_service(plan: Plan, table: DiscoveryTable) -> Mapping[str, Document]:
    directory = plan.directory
    pages = [page for one in plan.opened for page in one.loaded.building.pages]
    paths = {page.path for page in pages if "GET" in page.methods}
    labelled = [page.path for page in pages if page.label and page.path in paths and "{" not in page.path]
    labelled += plan.sold_by.pages.values() if plan.sold_by else ()
    connect = f"{directory.url}{CONNECT}" if CONNECT in paths else None
    skill = partial(skill_md, directory, connect=connect)
    catalog_link = {"Link": f'<{API_CATALOG}>; rel="api-catalog"'}
    return {
        "/robots.txt": Document.text(lambda: robots_txt(plan.config.url, table)),
        "/sitemap.xml": Document.text(lambda: sitemap_xml(directory.url, pages_in(directory, labelled, has_start="/" in paths)), XML),
        "/llms.txt": Document.text(lambda: llms_txt(directory, connect=connect)),
        API_CATALOG: Document.json(lambda: api_catalog(directory), LINKSET_TYPE, **catalog_link),
        SKILL_PATH: Document.text(skill, MARKDOWN),
        "/.well-known/agent-skills/index.json": Document.json(lambda: skills_index(directory, skill())),
    }


def _of_operator(table: DiscoveryTable) -> Mapping[str, Document]:
    """Proofs towards registries that the service is the operator's, which campus.toml has."""
    found = {}
    if table.registry_proof is not None:
        found["/.well-known/mcp-registry-auth"] = Document.text(lambda: str(table.registry_proof))
    if table.glama_claim is not None:
        claim: dict[str, Any] = {"$schema": "https://glama.ai/mcp/schemas/connector.json", "claim": table.glama_claim}
        found["/.well-known/glama.json"] = Document.json(lambda: claim)
    return found


building = Building(http=Discovery)
