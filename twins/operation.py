"""A tool as an HTTP operation: its methods, its path, and where each argument is sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from fastmcp.tools import Tool

from twins.annotation import Route, is_read_only, route_of
from twins.parameter_decoding import ParameterDecoder, decoder_of

QUERY_METHODS = ("GET", "HEAD", "DELETE")
"""The methods whose arguments are sent in the query string; with every other method they are sent in a JSON body."""
Place = Literal["path", "query", "body", "arguments"]
"""Where an argument is sent: over HTTP in one of the first three, over MCP among the arguments."""


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

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool.name

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of the route; HEAD is not among them."""
        return self.route.methods

    @property
    def served_methods(self) -> tuple[str, ...]:
        """The methods, and HEAD with GET unless a call may change something: link previews send HEAD."""
        return (*self.methods, "HEAD") if "GET" in self.methods and is_read_only(self.tool) else self.methods

    @property
    def path(self) -> str:
        """The path, with {placeholders}."""
        return self.route.path

    @property
    def status(self) -> int:
        """The HTTP status of an answer."""
        return self.route.status

    @property
    def cache(self) -> str | None:
        """The Cache-Control value of an answer; None when no one may store it."""
        return self.route.cache

    @property
    def accepts_unknown(self) -> bool:
        """True if the tool accepts arguments that its schema does not name, as a tool of another server may."""
        return self.tool.parameters.get("additionalProperties", True) is not False

    @cached_property
    def by_wire_name(self) -> dict[str, Parameter]:
        """The parameters that are not in the path, by their names in the query."""
        return {parameter.wire: parameter for parameter in self.parameters if not parameter.in_path}

    @cached_property
    def by_name(self) -> dict[str, Parameter]:
        """All parameters, by the tool's own names."""
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
        """The accepted names at each place where a name can be unknown, with a method (None: over MCP)."""
        if method is None:
            return {"arguments": tuple(self.by_name)}
        if method in QUERY_METHODS:
            return {"query": tuple(self.by_wire_name)}
        return {"body": tuple(each.name for each in self.by_wire_name.values()), "query": ()}


def operation_of(tool: Tool, *, server: str, default_prefix: str) -> Operation:
    """The operation of a tool. Raises ValueError, with a sentence that names the tool, when it cannot be served."""
    try:
        return _operation_of(tool, server, route_of(tool, default_prefix=default_prefix))
    except (LookupError, AttributeError, TypeError) as error:  # the schemas of another server's tool may be anything
        raise ValueError(f"tool {tool.name!r}: its schemas cannot be read ({error!r})") from error


def _operation_of(tool: Tool, server: str, route: Route) -> Operation:
    schemas: Mapping[str, Any] = tool.parameters.get("properties", {})
    _check_names(tool.name, route, schemas)
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


def _check_parameters(tool: str, parameters: tuple[Parameter, ...]) -> None:
    wires = [parameter.wire for parameter in parameters if not parameter.in_path]
    if twice := {wire for wire in wires if wires.count(wire) > 1}:
        raise ValueError(f"tool {tool!r}: two of its arguments have the name {twice.pop()!r} in the query; give one another name")
    for parameter in parameters:
        if parameter.in_path and parameter.wire != parameter.name:
            raise ValueError(f"tool {tool!r}: query= renames {parameter.name!r}, which is sent in the path")
        if parameter.in_path and (parameter.decoder.items or parameter.decoder.as_json):
            raise ValueError(f"tool {tool!r}: {{{parameter.name}}} is a list or an object; a path holds one plain value")
