"""Tools as an MCP client lists them: each description is said once, and where older clients list them refusals fit their schemas."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastmcp.tools import Tool

from campus.pricing import META
from twins import RAW_RESULTS, with_parts

PROBLEM_FIELDS: Mapping[str, dict[str, Any]] = {
    "type": {"type": "string"},
    "title": {"type": "string"},
    "status": {"type": "integer"},
    "detail": {"type": "string"},
    "code": {"type": "string"},
    "request_id": {"type": "string"},
    "errors": {"type": "array"},
    "unlock": {"type": "array"},
    "x402Version": {"type": "integer"},
    "error": {"type": "string"},
    "resource": {"type": "object"},
    "accepts": {"type": "array"},
    "extensions": {"type": "object"},
}
"""The members of a problem, then those of x402's terms, which a 402 has too."""
DECLARATIONS = frozenset((META, "twins"))  # The members of a tool's meta in which its author declares access and route.
REFUSAL = {"required": ["code", "status", "detail"]}
STRICT = ("required", "additionalProperties", "minProperties", "anyOf", "oneOf", "allOf", "not", "if", "then", "else")
"""The keywords of a schema that a result must satisfy and a problem need not."""
DESCRIBE_OBJECTS = frozenset(("type", "properties", "$ref"))  # By these FastMCP takes a result for an object.
MEMBERS = ("properties", "patternProperties")


def as_listed(tools: Sequence[Tool], *, widened: bool) -> list[Tool]:
    """The tools as callers see them: output schemas are short; with `widened`, the refusals that a caller may receive fit them too.

    An author's declarations of access are left out. They name the author's price, which is not the one here if the operator
    sets another or takes no payments.
    """
    said: set[tuple[str, str]] = set()
    return [_listed(tool, said, widened=widened) for tool in tools]


def _listed(tool: Tool, said: set[tuple[str, str]], *, widened: bool) -> Tool:
    schema = None if tool.output_schema is None else shortened(tool.output_schema, said)
    if schema and widened:
        schema = with_refusals(schema)
    meta = {name: value for name, value in (tool.meta or {}).items() if name not in DECLARATIONS}
    return tool.model_copy(update={"output_schema": schema, "meta": meta or None})


def shortened(schema: Any, said: set[tuple[str, str]], member: str = "") -> Any:
    """The same schema for every value, with fewer words: a description is kept where `member` has it for the first time in `said`.

    Hosts load the list at each start, and some show it to the model. What an object says of itself is said by its member or its
    tool, and examples are in the OpenAPI documents, whose descriptions are complete.
    """
    if not isinstance(schema, Mapping):
        return schema
    inner = "" if "description" in schema else member
    is_new = bool(member) and (member, str(schema.get("description"))) not in said
    if is_new and "description" in schema:
        said.add((member, str(schema["description"])))
    kept = {keyword: value for keyword, value in schema.items() if keyword != "examples" and (keyword != "description" or is_new)}
    return with_parts(
        kept, lambda part, keyword, name: shortened(part, said, name if keyword in MEMBERS else "" if keyword == "$defs" else inner)
    )


def with_refusals(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema, extended so that a problem matches it too, with or without payment terms.

    Clients on the first TypeScript SDK, which speaks versions with a handshake only, check a refusal's structured content against
    the tool's output schema and throw away what does not fit. All others check no result that says that it is an error.
    So what a result must satisfy moves into one arm of an anyOf and the problem's members into the other, and a member
    that has another type in a problem may be of either type. Results themselves stay as strict as they are. None for results that are
    no objects where FastMCP cannot list them for older clients.
    """
    if not DESCRIBE_OBJECTS & schema.keys() or schema.get("type", "object") != "object":  # MCP's older clients get it wrapped
        roots = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        own = {key: value for key, value in schema.items() if key not in roots}
        return {"anyOf": [own, {"type": "object", **REFUSAL}], **roots} if RAW_RESULTS else None
    properties = {
        name: {"anyOf": [field, PROBLEM_FIELDS[name]]} if name in PROBLEM_FIELDS else field
        for name, field in schema.get("properties", {}).items()
    }
    widened = {key: value for key, value in schema.items() if key not in STRICT}
    result = {key: schema[key] for key in STRICT if key in schema and key != "additionalProperties"}
    return {**widened, "properties": properties, "anyOf": [result, REFUSAL]}
