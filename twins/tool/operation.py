"""A tool as an HTTP operation: its methods, its path, where each argument is sent, and how its text in a URL is decoded.

The text of a path or query parameter is converted to a JSON value according to the parameter's JSON schema. It stays a string if
the schema accepts strings (a schema that names no type accepts anything). Otherwise numbers, booleans and null are read as JSON, a list
is sent by repeating the name, and an object is one JSON text. A string that is none of these is passed on, for the validator to reject.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isinf
from typing import Any, Literal

from fastmcp.tools import Tool
from pydantic_core import from_json

from twins.fastmcp import function_of
from twins.tool.annotation import Route, is_read_only, route_of
from twins.tool.examples import Examples
from twins.tool.schemas import DEFINITIONS, TYPE_NAMES, Schema, alternatives_of, describes_object, types_of, values_of

QUERY_METHODS = ("GET", "HEAD", "DELETE")
"""The methods whose arguments are sent in the query string; with every other method they are sent in a JSON body."""
Place = Literal["path", "query", "body", "arguments"]
"""Where an argument is sent: over HTTP in one of the first three, over MCP among the arguments."""
# Integers and other numbers are not told apart here: the validator decides whether 1e3 is an acceptable integer.
ACCEPTED_AS = {kind: ("integer", "number") if name in ("integer", "number") else (name,) for kind, name in TYPE_NAMES.items()}


@dataclass(frozen=True)
class ParameterDecoder:
    """The types that a value may have, as JSON Schema names them; `words` are the strings that an enum or const allows.

    `items` decodes each text of a parameter that may be repeated.
    """

    types: frozenset[str]
    words: frozenset[str] | None = None
    items: "ParameterDecoder | None" = None

    @property
    def as_json(self) -> bool:
        return "string" not in self.types and not self.types.isdisjoint(("object", "array"))

    @cached_property
    def takes_any_text(self) -> bool:
        return "string" in self.types and self.words is None

    def decode(self, texts: Sequence[str]) -> Any:
        """The value of these texts, one for each time that the name was sent. ValueError if a single value was sent twice.

        A single text is a list of one where it is no other value that the parameter takes.
        """
        if self.items is None and len(texts) > 1:
            raise ValueError("is sent more than once; it takes one value")
        if self.items is None or (len(texts) == 1 and self.types - {"null"} and self._accepts(self.decode_one(texts[0]))):
            return self.decode_one(texts[0])
        return [self.items.decode_one(text) for text in texts]

    def _accepts(self, value: Any) -> bool:
        if isinstance(value, str):
            return "string" in self.types and (self.words is None or value in self.words)
        return True

    def decode_one(self, text: str) -> Any:
        if "string" in self.types and (self.words is None or text in self.words):
            return text
        try:
            value = from_json(text.encode(), allow_inf_nan=False)
        except ValueError:
            return text
        is_infinite = type(value) is float and isinf(value)  # 1e999: the number was too large for its type
        return text if is_infinite or self.types.isdisjoint(ACCEPTED_AS[type(value)]) else value


@dataclass(frozen=True)
class Parameter:
    """One argument of a tool: its name, its name in the query, its JSON schema, and the decoder of its text in a URL."""

    name: str
    wire: str
    schema: Mapping[str, Any]
    required: bool
    in_path: bool
    decoder: ParameterDecoder


@dataclass(frozen=True)
class Operation:
    """One tool with its HTTP route, as plain data. `server` is the name under which its server was opened."""

    tool: Tool
    server: str
    route: Route
    parameters: tuple[Parameter, ...]

    @cached_property
    def name(self) -> str:
        return self.tool.name

    @cached_property
    def methods(self) -> tuple[str, ...]:
        return self.route.methods

    @property
    def served_methods(self) -> tuple[str, ...]:
        """The methods, and HEAD with GET if the tool only reads and answers at once: link previews send HEAD and must change nothing."""
        has_head = "GET" in self.methods and is_read_only(self.tool) and self.tool.task_config.mode != "required"
        return (*self.methods, "HEAD") if has_head else self.methods

    @property
    def routes(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """The methods and paths at which it is served, the documented ones first."""
        return ((self.served_methods, self.path), *self.route.also)

    @cached_property
    def path(self) -> str:
        return self.route.path

    @cached_property
    def status(self) -> int:
        return self.route.status

    @cached_property
    def cache(self) -> str | None:
        return self.route.cache

    @cached_property
    def wraps_result(self) -> bool:
        """True if results need not be objects: HTTP sends them under `result`, and MCP as FastMCP does, to older clients wrapped."""
        schema = self.tool.output_schema
        return schema is not None and not describes_object(schema, schema)

    @cached_property
    def answer_schema(self) -> Schema | None:
        """The schema of an answer's body over HTTP, which is always an object; None if the tool declares no result."""
        schema = self.tool.output_schema
        if schema is None or not self.wraps_result:
            return schema
        roots = {name: schema[name] for name in DEFINITIONS if name in schema}  # references begin at the root
        inner = {name: value for name, value in schema.items() if name not in roots}
        return {"type": "object", "properties": {"result": inner}, "required": ["result"], "x-fastmcp-wrap-result": True, **roots}

    @cached_property
    def examples(self) -> Examples:
        is_own = function_of(self.tool) is not None
        return Examples(self.tool.parameters, self.answer_schema, any_of=self.route.any_of, is_own=is_own)

    def body_limit(self, usual: int) -> int:
        """The bytes that the body of a request may have: those that the tool declares, else the usual ones."""
        return usual if self.route.body_limit is None else self.route.body_limit

    @cached_property
    def accepts_unknown(self) -> bool:
        return self.tool.parameters.get("additionalProperties", True) is not False

    @cached_property
    def by_wire_name(self) -> dict[str, Parameter]:
        return {parameter.wire: parameter for parameter in self.parameters if not parameter.in_path}

    @cached_property
    def by_wire_name_beside_text(self) -> dict[str, Parameter]:
        """What the query string takes beside a body that is the text of one argument: all others; none if no body is."""
        text = self.route.body
        return {} if text is None else {wire: parameter for wire, parameter in self.by_wire_name.items() if parameter.name != text}

    @cached_property
    def by_name_in_body(self) -> dict[str, Parameter]:
        return {parameter.name: parameter for parameter in self.parameters if not parameter.in_path}

    @cached_property
    def by_name(self) -> dict[str, Parameter]:
        return {parameter.name: parameter for parameter in self.parameters}

    def place_of(self, name: str, method: str | None) -> tuple[Place, str]:
        """Where the argument `name` is sent with a method (None: over MCP), and its name there; for unknown arguments too."""
        if method is None:
            return "arguments", name
        parameter = self.by_name.get(name)
        if parameter and parameter.in_path:
            return "path", name
        if method in QUERY_METHODS:
            return "query", parameter.wire if parameter else name
        return "body", name

    def accepted_names(self, method: str | None) -> dict[str, tuple[str, ...]]:
        """For each place the names accepted there with this method (None: over MCP); not for the path, which holds no unknown name."""
        if method is None:
            return {"arguments": tuple(self.by_name)}
        if method in QUERY_METHODS:
            return {"query": tuple(self.by_wire_name)}
        return {"body": tuple(self.by_name_in_body), "query": tuple(self.by_wire_name_beside_text)}


def operation_of(tool: Tool, *, server: str, default_prefix: str) -> Operation:
    """The operation of a tool. Raises ValueError, with a sentence that names the tool, when it cannot be served."""
    try:
        return _operation_of(tool, server, route_of(tool, default_prefix=default_prefix))
    except (LookupError, AttributeError, TypeError) as error:  # the schemas of another server's tool may be anything
        raise ValueError(f"tool {tool.name!r}: its schemas cannot be read ({error!r})") from error


def _operation_of(tool: Tool, server: str, route: Route) -> Operation:
    schemas: Mapping[str, Any] = tool.parameters.get("properties", {})
    if odd := [name for name, schema in schemas.items() if not isinstance(schema, Mapping | bool)]:
        raise TypeError(f"that of {odd[0]!r} is neither an object nor true or false")
    _check_names(tool.name, route, schemas)
    _check_json(tool)
    required = set(tool.parameters.get("required", ()))
    parameters = tuple(
        Parameter(
            name=name,
            wire=route.query.get(name, name),
            schema=schema,
            required=name in required,
            in_path=name in route.placeholders,
            decoder=decoder_of(schema, tool.parameters),
        )
        for name, schema in schemas.items()
    )
    _check_parameters(tool.name, parameters)
    return Operation(tool, server, route, parameters)


def _check_names(tool: str, route: Route, schemas: Mapping[str, Any]) -> None:
    named = {
        "the placeholder": route.placeholders,
        "query=": tuple(route.query),
        "lenient=": route.lenient,
        "any_of=": route.any_of,
        "body=": (route.body,) if route.body else (),
    }
    for kind, names in named.items():
        if missing := set(names) - set(schemas):
            known = ", ".join(schemas) or "none"
            raise ValueError(f"tool {tool!r}: {kind} {missing.pop()!r} is not one of its arguments; the arguments are: {known}")


def _check_json(tool: Tool) -> None:
    """ValueError for NaN and infinities in a schema: JSON has none, so that no document could hold it."""
    schemas: dict[str, Any] = {f"its argument {name!r}": schema for name, schema in tool.parameters.get("properties", {}).items()}
    for subject, schema in (schemas | {"its arguments": tool.parameters, "its result": tool.output_schema}).items():
        try:
            json.dumps(schema, allow_nan=False, default=str)
        except ValueError:
            remedy = "for a default that stands for no limit, use None"
            raise ValueError(f"tool {tool.name!r}: the schema of {subject} has NaN or an infinity, which JSON lacks; {remedy}") from None


def _check_parameters(tool: str, parameters: tuple[Parameter, ...]) -> None:
    wires = [parameter.wire for parameter in parameters if not parameter.in_path]
    if twice := {wire for wire in wires if wires.count(wire) > 1}:
        raise ValueError(f"tool {tool!r}: two of its arguments have the name {twice.pop()!r} in the query; rename one of them")
    for parameter in parameters:
        if parameter.in_path and parameter.wire != parameter.name:
            raise ValueError(f"tool {tool!r}: query= renames {parameter.name!r}, which is sent in the path")
        if parameter.in_path and (parameter.decoder.items or parameter.decoder.as_json):
            raise ValueError(f"tool {tool!r}: {{{parameter.name}}} is a list or an object; a path holds one plain value")


def decoder_of(schema: Schema, root: Schema, *, in_list: bool = False) -> ParameterDecoder:
    """The decoder for values of `schema`, which are `in_list` or not; `root` is the document that its references point into.

    A list within a list cannot be written by repeating a name: each inner list is one JSON text, whatever it holds.
    """
    types: set[str] = set()
    words: set[str] | None = set()
    items: ParameterDecoder | None = None
    for arm in alternatives_of(schema, root):
        names = types_of(arm)
        if "array" in names and not in_list:
            among = [each for each in (*arm.get("prefixItems", ()), arm.get("items")) if isinstance(each, Mapping)]
            items = decoder_of({"anyOf": among or [{}]}, root, in_list=True)
        if "string" in names:
            values = values_of(arm)
            words = words | {value for value in values if isinstance(value, str)} if values and words is not None else None
        types |= names if in_list else names - {"array"}
    if "object" in types and "string" not in types and items is not None:
        types.add("array")  # what may be an object is documented as one JSON text, a list too
    return ParameterDecoder(frozenset(types), None if words is None else frozenset(words), items)
