"""Tools as an MCP client lists them: each part of a result is told once, and where older clients list them refusals fit their schemas."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastmcp.tools import Tool

from campus.pricing import META
from twins import RAW_RESULTS, resolved, with_parts

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
WORDS = frozenset(("description", "title", "examples", "default"))
"""The keywords that no value is checked by."""
UNTYPED = frozenset(("enum", "const", "$ref", "anyOf", "oneOf", "allOf", "not", "if"))
"""The keywords by which null would be judged too, where it is one of the types; all others look at values of their own type."""
DEFINITION = "#/$defs/"
REMEMBERED = 8  # Lists: callers may be shown different tools, and older clients other schemas.


class Listings:
    """The lists of one server's tools as callers see them, each made once: that takes 0.3 ms a tool."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], tuple[Sequence[Tool], list[Tool]]] = {}  # by identity, with the tools that have it

    def of(self, tools: Sequence[Tool], *, widened: bool) -> list[Tool]:
        """The tools with short output schemas; with `widened`, the refusals that a caller may receive fit them too.

        An author's declarations of access are left out. They name the author's price, which is not the one here if the operator
        sets another or takes no payments.
        """
        wanted = (widened, *map(id, tools))
        if wanted not in self._made:
            if len(self._made) >= REMEMBERED:
                self._made.clear()
            said: set[tuple[str, str]] = set()
            self._made[wanted] = tuple(tools), [_listed(tool, said, widened=widened) for tool in tools]
        return list(self._made[wanted][1])


def _listed(tool: Tool, said: set[tuple[str, str]], *, widened: bool) -> Tool:
    schema = None if tool.output_schema is None else shortened(with_shared_parts(tool.output_schema), said)
    if schema and widened:
        schema = with_refusals(schema)
    meta = {name: value for name, value in (tool.meta or {}).items() if name not in DECLARATIONS}
    return tool.model_copy(update={"output_schema": schema, "meta": meta or None})


def shortened(schema: Any, said: set[tuple[str, str]], member: str = "") -> Any:
    """The same schema for every value, with fewer words: a description is kept where `member` has it for the first time in `said`.

    Hosts load the list at each start, and some show it to the model. What an object says of itself is said by its member or its
    tool, and examples are in the OpenAPI documents, whose descriptions are complete. A member that is left out is null to all readers.
    """
    if not isinstance(schema, Mapping):
        return schema
    inner = "" if "description" in schema else member
    is_new = bool(member) and (member, str(schema.get("description"))) not in said
    if is_new and "description" in schema:
        said.add((member, str(schema["description"])))
    dropped = {"examples"} | ({"default"} if schema.get("default", schema) is None else set()) | (set() if is_new else {"description"})
    kept = {keyword: value for keyword, value in schema.items() if keyword not in dropped}
    whole = with_parts(
        kept, lambda part, keyword, name: shortened(part, said, name if keyword in MEMBERS else "" if keyword == "$defs" else inner)
    )
    return _with_null_as_type(whole)


def _with_null_as_type(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of "a value of this type, or null" with a list of types in place of two alternatives."""
    arms = schema.get("anyOf")
    if not (isinstance(arms, list) and len(arms) == 2 and arms[1] == {"type": "null"} and isinstance(arms[0], dict)):
        return schema
    typed, around = arms[0], {keyword: value for keyword, value in schema.items() if keyword != "anyOf"}
    if not isinstance(typed.get("type"), str) or UNTYPED & typed.keys() or not around.keys() <= WORDS:
        return schema
    return {**typed, "type": [typed["type"], "null"], **around}


def with_shared_parts(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema with each definition that one place refers to at that place, so that only what is shared is defined apart."""
    schema = resolved(schema, schema) or schema
    definitions = schema.get("$defs", {})
    uses: Counter[str] = Counter()
    for place in _references(schema):
        name, _, within = place["$ref"].removeprefix(DEFINITION).partition("/")
        uses[name] += 2 if within or not place.keys() - {"$ref"} <= WORDS else 1
    placed = {name for name, part in definitions.items() if uses[name] == 1 and isinstance(part, Mapping)}

    def put(part: Any, keyword: str = "", name: str = "") -> Any:
        if not isinstance(part, Mapping):
            return part
        reference = part.get("$ref")
        if isinstance(reference, str) and (found := reference.removeprefix(DEFINITION)) in placed and reference != found:
            return put({**definitions[found], **{key: value for key, value in part.items() if key != "$ref"}})
        return with_parts(part, put)

    whole = {keyword: value for keyword, value in schema.items() if keyword != "$defs"}
    shared = {name: put(part) for name, part in definitions.items() if name not in placed}
    return {**put(whole), **({"$defs": shared} if shared else {})}


def _references(node: Any) -> Iterator[Mapping[str, Any]]:
    """The parts of a schema that refer to another."""
    if isinstance(node, Mapping) and isinstance(node.get("$ref"), str):
        yield node
    below = node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    for part in below:
        yield from _references(part)


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
