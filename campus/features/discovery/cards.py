"""What registries and catalogs read of each MCP server: server cards and the AI catalog (SEP-2127), and server.json. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mcp_types.version import SUPPORTED_PROTOCOL_VERSIONS

from campus.catalog.authors import own_icons
from campus.catalog.server import OpenBuilding
from campus.config import Config
from campus.directory import BuildingEntry
from campus.installed import own_version

CARD_SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
REGISTRY_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
CARD_TYPE = "application/mcp-server-card+json"
CATALOG_TYPE = "application/ai-catalog+json"
LONGEST_TEXT = 100
"""Characters of a title or a description in a card and in the registry."""
REGISTRY_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*[a-zA-Z0-9]")
ONE_VERSION = re.compile(r"v?\d+(\.\d+)*([-+][0-9A-Za-z.+-]{1,100})?")
Icons = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Listing:
    """One server as registries list it. `domain` is that of the service, `namespace` the same in reverse."""

    entry: BuildingEntry
    version: str
    domain: str
    namespace: str
    website: str
    icons: Icons

    @property
    def name(self) -> str:
        """Its name in registries, such as example.campus/cve. A name that they would refuse gets a word before it."""
        name = self.entry.name
        return f"{self.namespace}/{name if REGISTRY_NAME.fullmatch(name) else 'server-' + name.rstrip('_')}"

    @property
    def identifier(self) -> str:
        return f"urn:air:{self.domain}:mcp:{self.entry.name}"

    @property
    def card_url(self) -> str:
        return f"{self.entry.mcp}/server-card"

    @property
    def described(self) -> dict[str, Any]:
        """The members that a card and server.json share."""
        return {
            "name": self.name,
            "title": shortened(self.entry.title) or self.entry.name,
            "description": shortened(self.entry.about) or self.entry.name,
            "version": self.version,
        }

    def remote(self) -> dict[str, Any]:
        headers = {"headers": [_key_header(self.entry)]} if self.entry.key_scope else {}
        return {"type": "streamable-http", "url": self.entry.mcp, **headers}


def listings_of(
    config: Config, opened: Iterable[OpenBuilding], entries: Mapping[str, BuildingEntry], *, namespace: str | None
) -> tuple[Listing, ...]:
    """Every open server. Where its author gives no icon, it has the service's."""
    host = urlsplit(config.url).hostname or ""
    domain = host if re.fullmatch(r"[a-z0-9.-]+", host) else "localhost"
    namespace = namespace or ".".join(reversed(domain.split(".")))
    return tuple(
        Listing(
            entry=entries[one.name],
            version=_one_version(one.version),
            domain=domain,
            namespace=namespace,
            website=one.server.website_url or config.url,
            icons=[icon.model_dump(by_alias=True, mode="json", exclude_none=True) for icon in one.loaded.server.icons or own_icons(config)],
        )
        for one in opened
    )


def _one_version(version: str | None) -> str:
    """The version; campus's own where registries would read it as a range or refuse it."""
    return version if version and ONE_VERSION.fullmatch(version) else own_version()


def shortened(text: str) -> str:
    """The first sentence on one line, in at most 100 characters: cut at a colon if there is one, else after a word."""
    line = " ".join(text.split())
    sentence = line.partition(". ")[0]
    if len(sentence) <= LONGEST_TEXT:
        return sentence
    start, colon, _ = sentence.partition(": ")
    if colon and len(start) <= LONGEST_TEXT:
        return start
    return sentence[: LONGEST_TEXT - 1].rpartition(" ")[0].rstrip(",;:") + "…"


def _key_header(entry: BuildingEntry) -> dict[str, Any]:
    key = {"description": f"A key of scope {entry.key_scope}, or of scope all", "isRequired": True, "isSecret": True}
    return {
        "name": "Authorization",
        "description": "Opens the paid tools; leave it out to use the free ones.",
        "isRequired": False,
        "isSecret": True,
        "value": "Bearer {key}",
        "variables": {"key": key},
    }


def server_card(listing: Listing) -> dict[str, Any]:
    """The card of one server (SEP-2127), at <its MCP address>/server-card. It lists no tools: a client asks the server."""
    return {
        "$schema": CARD_SCHEMA,
        **listing.described,
        "websiteUrl": listing.website,
        "icons": list(listing.icons),
        "remotes": [listing.remote() | {"supportedProtocolVersions": list(SUPPORTED_PROTOCOL_VERSIONS)}],
    }


def site_card(listing: Listing) -> dict[str, Any]:
    """The card of the server that stands for the whole service, with the members that readers of the earlier draft look for."""
    return server_card(listing) | {
        "serverInfo": {"name": listing.entry.title, "version": listing.version},
        "transport": {"type": "streamable-http", "endpoint": listing.entry.mcp},
        "capabilities": {"tools": {}},
    }


def ai_catalog(config: Config, listings: Sequence[Listing]) -> dict[str, Any]:
    logo = own_icons(config)[0].src
    host = {"displayName": config.server.name, "documentationUrl": f"{config.url}/docs/api", "logoUrl": logo}
    entries = [{"identifier": listing.identifier, "type": CARD_TYPE, "url": listing.card_url} for listing in listings]
    return {"specVersion": "1.0", "host": host, "entries": entries}


def server_json(listing: Listing) -> dict[str, Any]:
    """What `mcp-publisher publish` sends to the MCP registry. It takes https addresses only: others are left out."""
    website = {"websiteUrl": listing.website} if listing.website.startswith("https://") else {}
    icons = [icon for icon in listing.icons if str(icon["src"]).startswith("https://")]
    return {
        "$schema": REGISTRY_SCHEMA,
        **listing.described,
        **website,
        **({"icons": icons} if icons else {}),
        "remotes": [listing.remote()],
    }
