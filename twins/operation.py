"""A tool as an HTTP operation: its methods, its path, and where each argument travels."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from fastmcp.tools import Tool

from twins.annotation import Route, reads_only, route_of
from twins.parameter_decoding import ParameterDecoder, decoder_of

IN_QUERY = ("GET", "HEAD", "DELETE")
Place = Literal["path", "query", "body", "arguments"]
"""Where an argument travels: over HTTP in one of the first three, over MCP among the arguments."""


@dataclass(frozen=True)
class Parameter:
    """One argument of a tool: its name, its name in the query, its JSON schema and how that is spelled in a text."""

    name: str
    wire: str
    schema: Mapping[str, Any]
    required: bool
    in_path: bool
    decoder: ParameterDecoder


@dataclass(frozen=True)
class Operation:
    """One tool's twin, as plain data. `server` is the name under which its server was opened."""

    tool: Tool
    server: str
    route: Route
    parameters: tuple[Parameter, ...]

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def methods(self) -> tuple[str, ...]:
        return self.route.methods

    @property
    def served(self) -> tuple[str, ...]:
        """The methods with HEAD beside GET, but where a call may change something: previews of a link send HEAD."""
        return (*self.methods, "HEAD") if "GET" in self.methods and reads_only(self.tool) else self.methods

    @property
    def path(self) -> str:
        return self.route.path

    @property
    def status(self) -> int:
        return self.route.status

    @property
    def cache(self) -> str | None:
        return self.route.cache

    @property
    def accepts_unknown(self) -> bool:
        """Whether the tool takes arguments that its schema does not name (a tool of another server may)."""
        return self.tool.parameters.get("additionalProperties", True) is not False

    @cached_property
    def by_wire_name(self) -> dict[str, Parameter]:
        return {parameter.wire: parameter for parameter in self.parameters if not parameter.in_path}

    @cached_property
    def by_name(self) -> dict[str, Parameter]:
        return {parameter.name: parameter for parameter in self.parameters}

    def place_of(self, name: str, method: str | None) -> tuple[Place, str]:
        """Where the argument `name` travels under a method (None: over MCP), and its name there; unknown arguments too."""
        if method is None:
            return "arguments", name
        parameter = self.by_name.get(name)
        if parameter and parameter.in_path:
            return "path", name
        if method in IN_QUERY:
            return "query", parameter.wire if parameter else name
        return "body", name

    def accepted_names(self, method: str | None) -> dict[str, tuple[str, ...]]:
        """The names that are taken at each place where a name can be unknown, under a method (None: over MCP)."""
        if method is None:
            return {"arguments": tuple(self.by_name)}
        if method in IN_QUERY:
            return {"query": tuple(self.by_wire_name)}
        return {"body": tuple(each.name for each in self.by_wire_name.values()), "query": ()}


def operation_of(tool: Tool, *, server: str, default_prefix: str) -> Operation:
    """The twin of a tool. Raises ValueError, with a sentence that names the tool, where it cannot be served."""
    route = route_of(tool, default_prefix=default_prefix)
    schemas: Mapping[str, Any] = tool.parameters.get("properties", {})
    named = {
        "the placeholder": route.placeholders,
        "query=": tuple(route.query),
        "lenient=": route.lenient,
        "any_of=": route.any_of,
    }
    for kind, names in named.items():
        if missing := set(names) - set(schemas):
            known = ", ".join(schemas) or "none"
            raise ValueError(f"tool {tool.name!r}: {kind} {missing.pop()!r} is none of its arguments; there are: {known}")
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
    operation = Operation(tool, server, route, parameters)
    _check(operation)
    return operation


def _check(operation: Operation) -> None:
    name = operation.tool.name
    wires = [parameter.wire for parameter in operation.parameters if not parameter.in_path]
    if twice := {wire for wire in wires if wires.count(wire) > 1}:
        raise ValueError(f"tool {name!r}: two of its arguments are called {twice.pop()!r} in the query")
    for parameter in operation.parameters:
        if parameter.in_path and parameter.wire != parameter.name:
            raise ValueError(f"tool {name!r}: query= renames {parameter.name!r}, which travels in the path")
        if parameter.in_path and (parameter.decoder.items or parameter.decoder.as_json):
            raise ValueError(f"tool {name!r}: {{{parameter.name}}} is a list or an object; a path holds one plain value")
