"""A building's MCP server, made over the author's FastMCP server: the overrides of campus.toml, every tool's operation and its offer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from inspect import Signature
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware
from fastmcp.server.transforms import Transform
from fastmcp.tools import Tool
from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError
from starlette.routing import BaseRoute

from campus.catalog.authors import check_author, check_task_tool, has_tasks, server_over
from campus.catalog.loader import LoadedBuilding
from campus.config import BuildingTable, ToolTable
from campus.errors import ConfigError, LoadError, one_line
from campus.layout.apps import SCHEME as APPS
from campus.pricing import FREE, LOCAL_KEY, META, Access, Offer, access_of
from twins import ROUTE_META, Operation, is_read_only, operations_of, route, synthetic_tools

HOW_TO_HIDE = 'fix the tool, or hide it in campus.toml: tools = { "its name" = { hidden = true } }'


LONGEST_TITLE, LONGEST_ABOUT = 100, 1_000
"""Characters of what a server says of itself, where it is shown beside others."""
NAMED = 5
"""Tools that stand for the rest, of a server that says nothing."""
MISPLACED = frozenset(("access", "free", "key", "price", "renews", "route", "sells"))
"""Members that an author would write into a tool's meta for campus, which reads what access(), free() and route() return."""


class ToolOverrides(Transform):
    """Applies campus.toml to a building's tools: price, key rule, route, hidden. Prompts and resources but apps are hidden unless exposed.

    It appends what a call needs to each tool's description; `per_call` says whether payments are accepted. The `synthetic` tools
    are those of tool search and code mode: a call of one costs what the tools that it calls cost.
    """

    twin_safe = True
    """Every caller gets the same tools, so calls may run without the server."""

    def __init__(
        self,
        building: str,
        scope: str,
        table: BuildingTable,
        *,
        per_call: bool,
        is_local: bool = False,
        synthetic: frozenset[str] = frozenset(),
    ) -> None:
        self._building = building
        self._is_local = is_local
        self._synthetic = synthetic
        self._scope = scope
        self._per_call = per_call
        self._tables: Mapping[str, ToolTable] = table.tools
        self._exposed: Sequence[str] = table.expose
        self._applied: dict[str, tuple[Tool, Tool | None]] = {}  # by key, with the original tool: it is asked for in each call

    def override_for(self, tool: str) -> ToolTable:
        """The table of the most specific pattern that matches the tool: its own name, else the pattern with the most letters."""
        matching = [pattern for pattern in self._tables if fnmatchcase(tool, pattern)]
        if not matching:
            return ToolTable()
        return self._tables[max(matching, key=lambda pattern: (pattern == tool, len(pattern.replace("*", ""))))]

    def unmatched(self) -> list[str]:
        """The names and patterns that match none of the tools: a misspelled name would leave a tool open."""
        seen = {tool.name for tool, _ in self._applied.values()} | self._synthetic
        return sorted(pattern for pattern in self._tables if not any(fnmatchcase(name, pattern) for name in seen))

    def apply(self, tool: Tool) -> Tool | None:
        """The tool as it is shown here; None when it is hidden."""
        original, shown = self._applied.get(tool.key, (None, None))
        if original is not tool:
            shown = self._overridden(tool)
            self._applied[tool.key] = tool, shown
        return shown

    def _overridden(self, tool: Tool) -> Tool | None:
        table = self.override_for(tool.name)
        if table.hidden:
            return None
        if tool.name in self._synthetic:
            return tool
        meta = dict(tool.meta or {})
        if table.says_access and meta.get(META, {}).get("sells"):
            raise ConfigError(
                f"campus.toml gives the tool {tool.name!r} a price or a key rule, but it sells products at the prices of [products]; write"
                f" {tool.name} = {{}} under tools, next to the pattern that matches it"
            )
        if table.says_access or table.scope or table.fails_if:
            if not (table.says_access or table.scope or META in meta):
                raise ConfigError(f"campus.toml gives the tool {tool.name!r} fails_if alone; write its price, or free = true, beside it")
            kept = {} if table.says_access else dict(meta.get(META, {}))
            meta[META] = kept | table.model_dump(include={"price", "key", "scope", "free", "fails_if"}, exclude_defaults=True)
        if table.route:
            meta |= route(table.route)
        if table.body_limit:
            meta[ROUTE_META] = {**meta.get(ROUTE_META, {}), "body_limit": table.body_limit}
        shown = tool if meta == (tool.meta or {}) else tool.model_copy(update={"meta": meta})
        return shown.model_copy(update={"description": with_requirements(shown, self._offer(shown).needs(per_call=self._per_call))})

    def _offer(self, tool: Tool) -> Offer:
        return offer_of(self._building, self._scope, tool, declared_access(self._building, tool), is_local=self._is_local)

    async def list_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        return [shown for tool in tools if (shown := self.apply(tool))]

    async def get_tool(self, name: str, call_next: Any, *, version: Any = None) -> Tool | None:
        tool = await call_next(name, version=version)
        return self.apply(tool) if tool else None

    async def list_resources(self, resources: Sequence[Any]) -> Sequence[Any]:
        return [one for one in resources if self._is_open(str(one.uri))]

    async def get_resource(self, uri: str, call_next: Any, *, version: Any = None) -> Any:
        return await call_next(uri, version=version) if self._is_open(uri) else None

    def _is_open(self, uri: str) -> bool:
        """Whether callers may read the resource: apps, the pages on which hosts show results, are open without being exposed."""
        return "resources" in self._exposed or uri.startswith(APPS)

    async def list_resource_templates(self, templates: Sequence[Any]) -> Sequence[Any]:
        return templates if "resources" in self._exposed else []

    async def get_resource_template(self, uri: str, call_next: Any, *, version: Any = None) -> Any:
        return await call_next(uri, version=version) if "resources" in self._exposed else None

    async def list_prompts(self, prompts: Sequence[Any]) -> Sequence[Any]:
        return prompts if "prompts" in self._exposed else []

    async def get_prompt(self, name: str, call_next: Any, *, version: Any = None) -> Any:
        return await call_next(name, version=version) if "prompts" in self._exposed else None


@dataclass(frozen=True)
class OpenBuilding:
    """A building as campus serves it. `operations` and `offers` are by tool name."""

    loaded: LoadedBuilding
    scope: str
    server: FastMCP[Any]
    operations: Mapping[str, Operation]
    offers: Mapping[str, Offer]
    synthetic: frozenset[str] = frozenset()
    """The names of the tools by which tool search and code mode call these, over MCP alone."""

    @property
    def name(self) -> str:
        """The building's name."""
        return self.loaded.name

    @property
    def title(self) -> str:
        """What people read for its name: of campus.toml, else of its server."""
        return self.loaded.table.title or one_line(self.server._mcp_server.title or self.server.name, longest=LONGEST_TITLE)

    @property
    def about(self) -> str:
        """What it does: in the words of campus.toml, else of its server, else the names of its tools."""
        said = self.server._mcp_server.description or self.server.instructions
        if said and self.loaded.remote is not None:  # a stranger's, beside those of others
            said = one_line(said, longest=LONGEST_ABOUT)
        return (
            self.loaded.table.about or said or f"Its tools: {', '.join([*self.operations][:NAMED])}{' …' * (len(self.operations) > NAMED)}"
        )

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools by name, with the overrides of campus.toml."""
        return {name: operation.tool for name, operation in self.operations.items()}

    @property
    def has_tasks(self) -> bool:
        """Whether the author registered the extension by which tools run as background tasks."""
        return has_tasks(self.loaded.server)

    @property
    def task_tools(self) -> tuple[str, ...]:
        """The names of the tools that may run as background tasks."""
        return tuple(name for name, operation in self.operations.items() if operation.tool.task_config.supports_tasks())

    @property
    def sells_keys(self) -> bool:
        """Whether a tool sells keys: chat apps list no server that sells."""
        return any(offer.access.sells for offer in self.offers.values())

    @property
    def mcp_path(self) -> str:
        """The path of its MCP endpoint."""
        return mcp_path_of(self.loaded)


def mcp_path_of(loaded: LoadedBuilding) -> str:
    """The path of a building's MCP endpoint: /mcp for the building at /, else /<name>/mcp."""
    path = loaded.table.path or f"/{loaded.name}"
    return f"{path.rstrip('/')}/mcp"


def document_paths(loaded: LoadedBuilding) -> tuple[str, ...]:
    """The addresses at which campus describes a building."""
    name = loaded.name
    return f"/v1/{name}", f"/{name}/openapi.json", f"/{name}/server.json", f"{mcp_path_of(loaded)}/server-card"


async def open_server(
    loaded: LoadedBuilding, *, per_call: bool, url: str | None = None, seconds: float = 10.0, is_local: bool = False
) -> OpenBuilding:
    """Open a server over the author's tools, which are not changed; LoadError when a tool cannot be served.

    `per_call` says whether payments are accepted here, `is_local` whether the campus is for its machine alone. `url` is the service's
    address: where a server has no website and no icon of its own, clients are shown those of the service. Raises Unreachable when the
    tools belong to another server that does not answer within `seconds`.
    """
    name = loaded.name
    if loaded.remote is not None:
        await loaded.remote.open(seconds=seconds)
        loaded = replace(loaded, server=loaded.remote.server())
    author = loaded.server
    check_author(author, name, exposed=loaded.table.expose)
    scope = loaded.table.scope or name
    synthetic = await synthetic_tools(author)
    if priced := sorted(each for each in synthetic if each in loaded.table.tools and loaded.table.tools[each].says_access):
        raise ConfigError(
            f"[buildings.{name}.tools] gives {priced[0]!r} a price or a key rule, but {priced[0]} is a tool of tool search or code mode,"
            " whose calls cost what the tools that they reach cost; set the prices of those"
        )
    overrides = ToolOverrides(name, scope, loaded.table, per_call=per_call, is_local=is_local, synthetic=synthetic)
    server = server_over(author, overrides, url=url, exposed=loaded.table.expose)
    server._mcp_server.title = loaded.table.title or server._mcp_server.title
    try:
        operations = {operation.name: operation for operation in await operations_of(server, name=name, gated=True)}
    except ValueError as error:
        raise LoadError(f"building {name!r}: {error}; {HOW_TO_HIDE}") from error
    for operation in operations.values():
        check_task_tool(operation.tool, author, name)
        if loaded.table.server is None:
            _check_result(operation.tool, name)
        if loaded.remote is None and not overrides.override_for(operation.name).says_access:
            _check_words(operation.tool, name)
    if not operations:
        raise LoadError(f"building {name!r} has no tools; {'see its server' if loaded.remote else 'see its module'}")
    if unmatched := overrides.unmatched():
        there_are = ", ".join(sorted(operations))
        raise ConfigError(f"[buildings.{name}.tools] names {unmatched[0]!r}, but no tool has that name; the tools are: {there_are}")
    offers = offers_of(name, scope, {operation.name: operation.tool for operation in operations.values()}, is_local=is_local)
    if selling := [each for each, offer in offers.items() if offer.access.sells and operations[each].tool.task_config.supports_tasks()]:
        raise LoadError(
            f"tool {selling[0]!r} of building {name!r} sells keys, which are stored encrypted, and tasks' results are not; remove task="
        )
    return OpenBuilding(loaded, scope, server, operations, offers, synthetic)


def _check_result(tool: Tool, building: str) -> None:
    """LoadError for a tool whose result has no JSON form: FastMCP would send its repr."""
    kind = getattr(tool, "return_type", None)
    if tool.output_schema is not None or not isinstance(kind, type) or kind is Signature.empty:
        return
    if kind.__module__.partition(".")[0] in ("fastmcp", "mcp_types"):
        return
    try:
        TypeAdapter(kind)
    except PydanticSchemaGenerationError:
        remedy = "return a pydantic model, a dict or text; for a file FastMCP's File or Image"
        raise LoadError(f"tool {tool.name!r} of building {building!r} returns {kind.__name__}, which has no JSON form; {remedy}") from None


def _check_words(tool: Tool, building: str) -> None:
    """LoadError for a price or the like at the top of a tool's meta, where nothing reads it: the tool would be served free."""
    if words := sorted(MISPLACED & (tool.meta or {}).keys()):
        raise LoadError(
            f"tool {tool.name!r} of building {building!r} has {words[0]!r} at the top of its meta, where campus does not read it; write"
            ' meta=access(price="0.01"), meta=free() or meta=route("GET /v1/…") with the functions of campus, or set price or free for it'
            f" in [buildings.{building}.tools]"
        )


def custom_routes(author: FastMCP[Any]) -> list[BaseRoute]:
    """The custom routes of the author's server (`_additional_http_routes`: FastMCP offers no way to list them)."""
    return list(author._additional_http_routes)


def put_first(server: FastMCP[Any], middleware: Middleware) -> None:
    """Run `middleware` before all other middleware of the server."""
    server.middleware.insert(0, middleware)


def offers_of(building: str, scope: str, tools: Mapping[str, Tool], *, is_local: bool = False) -> dict[str, Offer]:
    """Every tool's offer. If one tool declares its access, all must: no tool is free because a declaration was forgotten."""
    declared = {name: declared_access(building, tool) for name, tool in tools.items()}
    missing = sorted(name for name, access in declared.items() if access is None)
    if missing and len(missing) < len(declared):
        raise LoadError(
            f"in building {building!r} {', '.join(missing)} declare neither access() nor free(), while other tools do; "
            f"declare it in the tool's meta, or in [buildings.{building}.tools]"
        )
    return {name: offer_of(building, scope, tools[name], access, is_local=is_local) for name, access in declared.items()}


def offer_of(building: str, scope: str, tool: Tool, access: Access | None, *, is_local: bool) -> Offer:
    """A tool's offer: with the scope that the tool declares, else its building's."""
    undeclared = LOCAL_KEY if is_local and not is_read_only(tool) else FREE
    return Offer(building, tool.name, access or undeclared, (access and access.scope) or scope)


def with_requirements(tool: Tool, needs: str) -> str:
    """The tool's description, then what a call needs; a description that mentions keys says itself what a key adds."""
    text = (tool.description or "").strip() or tool.title or tool.name
    if needs.startswith("Free; ") and re.search(r"\bkeys?\b", text, re.IGNORECASE):
        needs = "Free."
    return f"{text}\n\n{needs}"


def declared_access(building: str, tool: Tool) -> Access | None:
    """The access that a tool declares; LoadError when the declaration makes no sense."""
    try:
        return access_of(tool.meta)
    except ValueError as error:
        raise LoadError(f"tool {tool.name!r} of building {building!r}: {error}") from None


def summary_of(tool: Tool) -> str:
    """The first sentence of a tool's description."""
    words = " ".join((tool.description or tool.name).split("\n\n")[0].split())
    first, stop, _ = words.partition(". ")
    return first + stop.strip()
