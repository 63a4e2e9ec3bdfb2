"""A building as it is served: the tools of its author's server, the overrides of campus.toml, every tool's operation and its offer."""

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from inspect import Signature
from typing import Any

from fastmcp import FastMCP
from fastmcp.tools import FunctionTool, Tool
from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError
from starlette.routing import BaseRoute

from campus.catalog.authors import check_author, check_task_tool, grows_at_start, has_tasks, put_gate_first, version_of
from campus.catalog.loader import LoadedBuilding
from campus.config import BuildingTable, ToolTable
from campus.errors import CampusError, ConfigError, LoadError, one_line
from campus.pricing import FREE, LOCAL_KEY, META, UNDECLARED, Access, Offer, access_of
from twins import ROUTE_META, Catalog, Operation, as_published, is_read_only, operation_from, resolved, route, server_info, synthetic_tools

HOW_TO_HIDE = 'fix the tool, or hide it in campus.toml: tools = { "its name" = { hidden = true } }'
LONGEST_TITLE, LONGEST_ABOUT = 100, 1_000  # Characters of what a server says of itself, where it is shown beside others.
NAMED = 5  # Tools that stand for the rest, of a server that says nothing.
MISPLACED = frozenset(("access", "free", "key", "price", "renews", "route", "sells"))
"""Members that an author would write into a tool's meta for campus, which reads what access(), free() and route() return."""
COUNTED = frozenset(("array", "integer"))  # The JSON types of an argument that a price may depend on.
REMEMBERED = 2_000
"""How many tools of one server are known by their overridden form; a provider may make its tools anew for each list."""
log = logging.getLogger(__name__)


class ToolOverrides:
    """Applies campus.toml to a building's tools: price, key rule, route, hidden.

    It appends what a call needs to each tool's description; `per_call` says whether payments are accepted. The `synthetic` tools
    are those of tool search and code mode: a call of one costs what the tools that it calls cost.
    """

    def __init__(
        self,
        building: str,
        scope: str,
        table: BuildingTable,
        *,
        per_call: bool,
        has_credits: bool = False,
        is_local: bool = False,
        synthetic: frozenset[str] = frozenset(),
    ) -> None:
        self.synthetic = synthetic
        self.is_priced = False
        """Whether a tool has declared its access: then one that does not is not free."""
        self._building = building
        self._is_local = is_local
        self._scope = scope
        self._per_call = per_call
        self._has_credits = has_credits
        self._tables: Mapping[str, ToolTable] = table.tools
        self._applied: dict[str, tuple[Tool, Tool | None]] = {}  # by key, with the original tool

    def override_for(self, tool: str) -> ToolTable:
        """The table of the most specific pattern that matches the tool: its own name, else the pattern with the most letters."""
        matching = [pattern for pattern in self._tables if fnmatchcase(tool, pattern)]
        if not matching:
            return ToolTable()
        return self._tables[max(matching, key=lambda pattern: (pattern == tool, len(pattern.replace("*", ""))))]

    def unmatched(self, names: Collection[str]) -> list[str]:
        """The names and patterns that match none of these tools: a misspelled name would leave a tool open."""
        seen = {*names, *self.synthetic}
        return sorted(pattern for pattern in self._tables if not any(fnmatchcase(name, pattern) for name in seen))

    def learn(self, tools: Iterable[Tool]) -> None:
        if not self.is_priced and any(self._declared(known) is not None for tool in tools if (known := self._with_table(tool))):
            self.is_priced = True
            self._applied.clear()

    def undeclared(self, tools: Iterable[Tool]) -> list[str]:
        shown = [known for tool in tools if tool.name not in self.synthetic and (known := self._with_table(tool))]
        return sorted(tool.name for tool in shown if self._declared(tool) is None) if self.is_priced else []

    def apply(self, tool: Tool) -> Tool | None:
        """The tool as it is shown here; None when it is hidden. ConfigError or LoadError for one that cannot be offered as it says."""
        original, shown = self._applied.get(tool.key, (None, None))
        if original is not tool:
            known = self._with_table(tool)
            shown = known if known is None or tool.name in self.synthetic else self._described(known)
            if len(self._applied) >= REMEMBERED:
                self._applied.clear()
            self._applied[tool.key] = tool, shown
        return shown

    def offer_of(self, tool: Tool) -> Offer:
        undeclared = UNDECLARED if self.is_priced else LOCAL_KEY if self._is_local and not is_read_only(tool) else FREE
        access = self._declared(tool) or undeclared
        return Offer(self._building, tool.name, access, access.scope or self._scope)

    def _declared(self, tool: Tool) -> Access | None:
        """The access that a tool declares; LoadError when the declaration makes no sense."""
        try:
            return access_of(tool.meta)
        except ValueError as error:
            raise LoadError(f"tool {tool.name!r} of building {self._building!r}: {error}") from None

    def _described(self, tool: Tool) -> Tool:
        needs = self.offer_of(tool).needs(per_call=self._per_call, has_credits=self._has_credits)
        return tool.model_copy(update={"description": with_requirements(tool, needs)})

    def _with_table(self, tool: Tool) -> Tool | None:
        table = self.override_for(tool.name)
        if table.hidden:
            return None
        if tool.name in self.synthetic:
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
        shown = as_published(tool)
        return shown if meta == (tool.meta or {}) else shown.model_copy(update={"meta": meta})


@dataclass(frozen=True)
class OpenBuilding:
    """A building as campus serves it, made of what its server was when `catalog` was read. `operations` and `offers` are by tool name."""

    loaded: LoadedBuilding
    scope: str
    server: FastMCP[Any]
    catalog: Catalog
    overrides: ToolOverrides
    operations: Mapping[str, Operation]
    offers: Mapping[str, Offer]

    async def renewed(self) -> "OpenBuilding":
        put_gate_first(self.server, self.name)
        self.overrides.synthetic = await synthetic_tools(self.server)
        return _opened(self.loaded, self.scope, await Catalog.of(self.server, gated=True), self.overrides, strict=False)

    def without(self, names: Collection[str]) -> "OpenBuilding":
        operations = {name: operation for name, operation in self.operations.items() if name not in names}
        return replace(self, operations=operations, offers={name: self.offers[name] for name in operations})

    def found(self, tool: Tool) -> tuple[Operation, Offer] | None:
        """The operation and the offer of a tool that only some callers are shown; None if it is hidden or cannot be served."""
        with _judged(self.name, tool.name, strict=False):
            if (shown := self.overrides.apply(tool)) is not None:
                _check_tool(shown, self.loaded, self.overrides)
                return operation_from(shown, name=self.name, gated=True), self.overrides.offer_of(shown)
        return None

    def listed(self, tools: Iterable[Tool]) -> list[Tool]:
        found = []
        for tool in tools:
            with _judged(self.name, tool.name, strict=False):
                if (shown := self.overrides.apply(tool)) is not None:
                    found.append(shown)
        return found

    def check_names(self) -> None:
        """ConfigError for a name in campus.toml that matches no tool."""
        if unmatched := self.overrides.unmatched({tool.name for tool in self.catalog.tools}):
            there_are = ", ".join(sorted(self.operations)) or "none"
            raise ConfigError(
                f"[buildings.{self.name}.tools] names {unmatched[0]!r}, but no tool has that name; the tools are: {there_are}"
            )

    @property
    def version(self) -> str | None:
        """The server's version; campus's own where its author names none, since FastMCP then shows its own."""
        return version_of(self.server)

    @property
    def synthetic(self) -> frozenset[str]:
        return self.overrides.synthetic

    @property
    def name(self) -> str:
        return self.loaded.name

    @property
    def title(self) -> str:
        return self.loaded.table.title or one_line(server_info(self.server).title or self.server.name, longest=LONGEST_TITLE)

    @property
    def about(self) -> str:
        """What it does: in the words of campus.toml, else of its server, else the names of its tools."""
        said = server_info(self.server).description or self.server.instructions
        if said and self.loaded.late is not None:  # a stranger's, beside those of others
            said = one_line(said, longest=LONGEST_ABOUT)
        return (
            self.loaded.table.about or said or f"Its tools: {', '.join([*self.operations][:NAMED])}{' …' * (len(self.operations) > NAMED)}"
        )

    @property
    def tools(self) -> dict[str, Tool]:
        return {name: operation.tool for name, operation in self.operations.items()}

    @property
    def has_tasks(self) -> bool:
        return has_tasks(self.loaded.server)

    @property
    def task_tools(self) -> tuple[str, ...]:
        return tuple(name for name, operation in self.operations.items() if operation.tool.task_config.supports_tasks())

    @property
    def sells_keys(self) -> bool:
        """Whether a tool sells keys: chat apps list no server that sells."""
        return any(offer.access.sells for offer in self.offers.values())

    @property
    def mcp_path(self) -> str:
        return mcp_path_of(self.loaded)


def mcp_path_of(loaded: LoadedBuilding) -> str:
    """The path of a building's MCP endpoint: /mcp for the building at /, else /<name>/mcp."""
    path = loaded.table.path or f"/{loaded.name}"
    return f"{path.rstrip('/')}/mcp"


def document_paths(loaded: LoadedBuilding) -> tuple[str, ...]:
    name = loaded.name
    return f"/v1/{name}", f"/{name}/openapi.json", f"/{name}/server.json", f"{mcp_path_of(loaded)}/server-card"


async def open_server(
    loaded: LoadedBuilding, *, per_call: bool, has_credits: bool = False, seconds: float = 10.0, is_local: bool = False
) -> OpenBuilding:
    """The building of an author's server, or of another one; LoadError when a tool cannot be served.

    `per_call` says whether payments are accepted here, `has_credits` whether keys pay by credits, `is_local` whether the campus is for its
    machine alone. Raises Unreachable when the tools belong to another server that does not answer within `seconds`. A server that may make
    tools at its start is looked at again then.
    """
    name = loaded.name
    if loaded.late is not None:
        await loaded.late.open(seconds=seconds)
        loaded = replace(loaded, server=loaded.late.server())
    author = loaded.server
    check_author(author, name, exposed=loaded.table.expose)
    put_gate_first(author, name)
    scope = loaded.table.scope or name
    synthetic = await synthetic_tools(author)
    if priced := sorted(each for each in synthetic if each in loaded.table.tools and loaded.table.tools[each].says_access):
        raise ConfigError(
            f"[buildings.{name}.tools] gives {priced[0]!r} a price or a key rule, but {priced[0]} is a tool of tool search or code mode,"
            " whose calls cost what the tools that they reach cost; set the prices of those"
        )
    overrides = ToolOverrides(name, scope, loaded.table, per_call=per_call, has_credits=has_credits, is_local=is_local, synthetic=synthetic)
    opened = _opened(loaded, scope, await Catalog.of(author, gated=True), overrides, strict=True)
    if loaded.late is not None or not grows_at_start(author):
        if not opened.operations and not {"prompts", "resources"}.intersection(loaded.table.expose):
            raise LoadError(f"building {name!r} has no tools; {'see its server' if loaded.late else 'see its module'}")
        opened.check_names()
    return opened


def _opened(loaded: LoadedBuilding, scope: str, catalog: Catalog, overrides: ToolOverrides, *, strict: bool) -> OpenBuilding:
    """The building of a catalog. LoadError for a tool that cannot be served if `strict`; else it is left out, and logged."""
    name = loaded.name
    tools: list[Tool] = []
    for tool in catalog.tools:
        with _judged(name, tool.name, strict=strict):
            overrides.learn([tool])
            tools.append(tool)
    if missing := overrides.undeclared(tools):
        sentence = (
            f"in building {name!r} {', '.join(missing)} declare neither access() nor free(), while other tools do; "
            f"declare it in the tool's meta, or in [buildings.{name}.tools]"
        )
        if strict:
            raise LoadError(sentence)
        log.error("tools without a price take a key: %s", sentence)
    operations: dict[str, Operation] = {}
    offers: dict[str, Offer] = {}
    for tool in tools:
        with _judged(name, tool.name, strict=strict):
            if (shown := overrides.apply(tool)) is not None:
                operation = operation_from(shown, name=name, gated=True)
                _check_tool(shown, loaded, overrides)
                operations[tool.name], offers[tool.name] = operation, overrides.offer_of(shown)
    return OpenBuilding(loaded, scope, catalog.server, catalog, overrides, operations, offers)


@contextmanager
def _judged(building: str, tool: str, *, strict: bool) -> Iterator[None]:
    """What is wrong with a tool is LoadError if `strict`; else it is logged."""
    try:
        yield
    except (CampusError, ValueError) as error:
        sentence = str(error) if isinstance(error, CampusError) else f"building {building!r}: {error}; {HOW_TO_HIDE}"
        if not strict:
            log.error("tool is not served", extra={"building": building, "tool": tool, "reason": sentence})
        elif isinstance(error, CampusError):
            raise
        else:
            raise LoadError(sentence) from error


def _check_tool(tool: Tool, loaded: LoadedBuilding, overrides: ToolOverrides) -> None:
    name = loaded.name
    check_task_tool(tool, loaded.server, name)
    if loaded.table.server is None:
        _check_result(tool, name)
    if loaded.late is None and not overrides.override_for(tool.name).says_access:
        _check_words(tool, name)
    access = overrides.offer_of(tool).access
    if access.per is not None:
        _check_counted(tool, access.per.argument, name)
    if access.sells and tool.task_config.supports_tasks():
        raise LoadError(
            f"tool {tool.name!r} of building {name!r} sells keys, which are stored encrypted, and tasks' results are not; remove task="
        )


def _check_counted(tool: Tool, argument: str, building: str) -> None:
    """LoadError for a price by an argument that no call has, that cannot be counted, or that counts what a call did not send."""
    properties: dict[str, Any] = tool.parameters.get("properties", {})
    where = f"tool {tool.name!r} of building {building!r} has a price per {argument!r}"
    if argument not in properties:
        raise LoadError(f"{where}, and no such argument; the arguments are: {', '.join(properties) or 'none'}")
    schema = resolved(properties[argument], tool.parameters)
    kinds = {kind for part in (schema, *schema.get("anyOf", ())) for kind in _kinds(resolved(part, tool.parameters))}
    if not kinds & COUNTED or kinds - COUNTED - {"null"}:
        raise LoadError(f"{where}, which is neither a list nor a whole number; name an argument that is one")
    is_made = isinstance(tool, FunctionTool) and "default" not in schema and argument not in tool.parameters.get("required", ())
    if schema.get("default") or is_made:
        raise LoadError(
            f"{where}, whose default is not empty: a call without it would not pay for it; let it be required, or the default null, [] or 0"
        )


def _kinds(schema: Mapping[str, Any]) -> Collection[str]:
    """The JSON types that a schema names."""
    kind = schema.get("type", ())
    return (kind,) if isinstance(kind, str) else kind


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
    return list(getattr(author, "_additional_http_routes", ()))


def with_requirements(tool: Tool, needs: str) -> str:
    """The tool's description, then what a call needs; a description that mentions keys says itself what a key adds."""
    text = (tool.description or "").strip() or tool.title or tool.name
    if needs.startswith("Free; ") and re.search(r"\bkeys?\b", text, re.IGNORECASE):
        needs = "Free."
    return f"{text}\n\n{needs}"


def summary_of(tool: Tool) -> str:
    words = " ".join((tool.description or tool.name).split("\n\n")[0].split())
    first, stop, _ = words.partition(". ")
    return first + stop.strip()
