"""The rules of published discovery documents as JSON Schemas of our own words, each with the address of the rules.

They state what a reader relies on: names, limits, types and required members.
"""

from typing import Any

URL = {"type": "string", "pattern": r"^https?://[^\s]+$"}
HTTPS = {"type": "string", "pattern": r"^https://[^\s]+$", "maxLength": 255}
SHORT = {"type": "string", "minLength": 1, "maxLength": 100, "pattern": r"\S"}
IMAGES = ["image/png", "image/jpeg", "image/jpg", "image/svg+xml", "image/webp"]


def needs(properties: dict[str, Any], *optional: str, closed: bool = False) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": not closed}


def list_of(items: dict[str, Any], least: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least}


ICON = needs(
    {"src": URL, "mimeType": {"enum": IMAGES}, "sizes": list_of({"type": "string", "pattern": r"^(\d+x\d+|any)$"})}, "mimeType", "sizes"
)
INPUT = {"description": {"type": "string"}, "isRequired": {"type": "boolean"}, "isSecret": {"type": "boolean"}, "value": {"type": "string"}}
HEADER = needs(
    {"name": {"type": "string"}, **INPUT, "variables": {"type": "object", "additionalProperties": needs(INPUT, *INPUT)}},
    *INPUT,
    "variables",
)
REMOTE = needs(
    {
        "type": {"enum": ["streamable-http", "sse"]},
        "url": URL,
        "headers": list_of(HEADER),
        "supportedProtocolVersions": list_of({"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}),
    },
    "headers",
    "supportedProtocolVersions",
)
IDENTITY = {
    "name": {
        "type": "string",
        "minLength": 3,
        "maxLength": 200,
        "pattern": r"^[a-zA-Z0-9][a-zA-Z0-9.-]*[a-zA-Z0-9]/[a-zA-Z0-9][a-zA-Z0-9._-]*[a-zA-Z0-9]$",
    },
    "title": SHORT,
    "description": SHORT,
    "version": {"type": "string", "maxLength": 255, "pattern": r"^v?\d[^\s*xX^~<>=|]*$", "not": {"const": "latest"}},
}

SERVER_CARD = needs(
    {
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"},
        **IDENTITY,
        "websiteUrl": URL,
        "icons": list_of(ICON, 1),
        "remotes": list_of(REMOTE, 1),
    },
    closed=True,
)
"""https://github.com/modelcontextprotocol/experimental-ext-server-card, schema.json (SEP-2127); here no member may be unknown."""

REGISTRY_SERVER = needs(
    {
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"},
        **IDENTITY,
        "websiteUrl": HTTPS,
        "icons": list_of({**ICON, "properties": {**ICON["properties"], "src": HTTPS}}, 1),
        "remotes": list_of({**REMOTE, "properties": {**REMOTE["properties"], "url": HTTPS, "supportedProtocolVersions": False}}, 1),
    },
    closed=True,
)
"""https://github.com/modelcontextprotocol/registry, docs/reference/server-json and internal/validators: what it accepts of a server that
is public on the web."""

AI_CATALOG = needs(
    {
        "specVersion": {"type": "string", "pattern": r"^\d+\.\d+$"},
        "host": needs({"displayName": SHORT, "documentationUrl": URL, "logoUrl": URL}, closed=True),
        "entries": list_of(
            needs(
                {
                    "identifier": {"type": "string", "pattern": r"^urn:air:[a-z0-9.-]+(:[a-z0-9_-]+)+$"},
                    "type": {"const": "application/mcp-server-card+json"},
                    "url": URL,
                },
                closed=True,
            )
        ),
    },
    closed=True,
)
"""https://github.com/Agent-Card/ai-catalog, specification/ai-catalog.md."""

LINK = needs({"href": URL, "type": {"type": "string", "pattern": r"^[a-z]+/[a-z0-9.+-]+(;.*)?$"}}, "type", closed=True)
API_CATALOG = needs(
    {
        "linkset": list_of(
            {
                "type": "object",
                "properties": {"anchor": URL},
                "required": ["anchor"],
                "patternProperties": {"^(item|service-desc|service-doc|service-meta|status)$": list_of(LINK, 1)},
                "additionalProperties": False,
            },
            1,
        )
    },
    closed=True,
)
"""RFC 9727 and RFC 9264."""

SKILLS = needs(
    {
        "$schema": {"const": "https://schemas.agentskills.io/discovery/0.2.0/schema.json"},
        "skills": list_of(
            needs(
                {
                    "name": {"type": "string", "pattern": r"^[a-z0-9]+(-[a-z0-9]+)*$", "maxLength": 64},
                    "type": {"enum": ["skill-md", "archive"]},
                    "description": {"type": "string", "minLength": 1, "maxLength": 1024},
                    "url": {"type": "string", "pattern": r"^/\.well-known/agent-skills/[^/]+/SKILL\.md$"},
                    "digest": {"type": "string", "pattern": r"^sha256:[0-9a-f]{64}$"},
                },
                closed=True,
            ),
            1,
        ),
    },
    closed=True,
)
"""https://github.com/cloudflare/agent-skills-discovery-rfc, 0.2.0."""
