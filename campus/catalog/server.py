"""From a loaded building to campus's own server over its tools: the operator's word applied, every tool with its offer."""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import metadata
from typing import Any

import fastmcp
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware
from fastmcp.server.transforms import Transform
from fastmcp.tools import Tool

from campus.catalog.loader import LoadedBuilding
from campus.config import BuildingTable, ToolTable
from campus.errors import ConfigError, LoadError
from campus.tool_access import FREE, META, Access, Offer, access_of
from twins import route
from twins.fastmcp_internals import author_lifespan, author_middleware, every_tool


class ToolOverrides(Transform):
    """What campus.toml says of a building's tools: price, key rule, route, hidden; and that nothing else shows unless opened.

    Each tool's description ends with what a call needs; `per_call` says whether payments are accepted.
    """

    def __init__(self, building: str, scope: str, table: BuildingTable, *, per_call: bool) -> None:
        self._building = building
        self._scope = scope
        self._per_call = per_call
        self._words: Mapping[str, ToolTable] = table.tools
        self._exposed: Sequence[str] = table.expose
        self._applied: dict[str, tuple[Tool, Tool | None]] = {}  # by key, for the tool that it was made of: asked for each call

    def override_for(self, tool: str) -> ToolTable:
        """The most specific pattern that names the tool: its own name, else the pattern with the most letters."""
        fitting = [pattern for pattern in self._words if fnmatchcase(tool, pattern)]
        if not fitting:
            return ToolTable()
        return self._words[max(fitting, key=lambda pattern: (pattern == tool, len(pattern.replace("*", ""))))]

    def unmatched(self) -> list[str]:
        """The names and patterns that fit no tool seen so far: a word that was misspelled would leave a tool open."""
        seen = {tool.name for tool, _ in self._applied.values()}
        return sorted(pattern for pattern in self._words if not any(fnmatchcase(name, pattern) for name in seen))

    def applied(self, tool: Tool) -> Tool | None:
        """The tool as it is shown here; None when it is hidden."""
        of, shown = self._applied.get(tool.key, (None, None))
        if of is not tool:
            shown = self._apply(tool)
            self._applied[tool.key] = tool, shown
        return shown

    def _apply(self, tool: Tool) -> Tool | None:
        word = self.override_for(tool.name)
        if word.hidden:
            return None
        meta = dict(tool.meta or {})
        if word.says_access and meta.get(META, {}).get("sells"):
            raise ConfigError(
                f"campus.toml gives the tool {tool.name!r} a price or key rule, and it sells what [products] price; write"
                f" {tool.name} = {{}} under tools, beside the pattern that names it"
            )
        if word.says_access or word.scope:
            kept = {} if word.says_access else dict(meta.get(META, {}))
            meta[META] = kept | word.model_dump(include={"price", "key", "scope", "free"}, exclude_defaults=True)
        if word.route:
            meta |= route(word.route)
        shown = tool if meta == (tool.meta or {}) else tool.model_copy(update={"meta": meta})
        return shown.model_copy(update={"description": with_requirements(shown, self._offer(shown).needs(per_call=self._per_call))})

    def _offer(self, tool: Tool) -> Offer:
        return offer_of(self._building, self._scope, tool.name, declared_access(self._building, tool))

    async def list_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        return [shown for tool in tools if (shown := self.applied(tool))]

    async def get_tool(self, name: str, call_next: Any, *, version: Any = None) -> Tool | None:
        tool = await call_next(name, version=version)
        return self.applied(tool) if tool else None

    async def list_resources(self, resources: Sequence[Any]) -> Sequence[Any]:
        return resources if "resources" in self._exposed else []

    async def get_resource(self, uri: str, call_next: Any, *, version: Any = None) -> Any:
        return await call_next(uri, version=version) if "resources" in self._exposed else None

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
    """A building as campus serves it."""

    loaded: LoadedBuilding
    scope: str
    server: FastMCP[Any]
    tools: Mapping[str, Tool]
    offers: Mapping[str, Offer]

    @property
    def name(self) -> str:
        """The building's name."""
        return self.loaded.name

    @property
    def mcp_path(self) -> str:
        """Where its MCP server answers."""
        return mcp_path_of(self.loaded)


def mcp_path_of(loaded: LoadedBuilding) -> str:
    """Where a building's MCP server answers: /mcp for the building at /, else /<name>/mcp."""
    path = loaded.table.path or f"/{loaded.name}"
    return f"{path.rstrip('/')}/mcp"


async def open_server(loaded: LoadedBuilding, *, per_call: bool, seconds: float = 10.0) -> OpenBuilding:
    """Open campus's own server over the author's tools, which stay as they are; LoadError when it may not be served.

    `per_call` says whether payments are accepted here. Unreachable when its tools are another server's that does not answer
    within `seconds`.
    """
    author, name = loaded.server, loaded.name
    if author.auth is not None:
        raise LoadError(f"building {name!r} carries auth=, which shuts out keys and free tools; take it away: campus guards the tools")
    if loaded.remote is not None:
        await loaded.remote.open(seconds=seconds)
    scope = loaded.table.scope or name
    word = ToolOverrides(name, scope, loaded.table, per_call=per_call)
    server = server_over(author, word)
    tools = {tool.name: tool for tool in await every_tool(server)}
    if not tools:
        raise LoadError(f"building {name!r} has no tools; {'see its server' if loaded.remote else 'see its module'}")
    if unmatched := word.unmatched():
        there_are = ", ".join(sorted(tools))
        raise ConfigError(f"[buildings.{name}.tools] names {unmatched[0]!r}, and no tool has that name; the tools are: {there_are}")
    return OpenBuilding(loaded, scope, server, tools, offers_of(name, scope, tools))


def server_over(author: FastMCP[Any], word: Transform) -> FastMCP[Any]:
    """A server of campus's own over the author's providers; his middleware, transforms and lifespan come along."""

    @asynccontextmanager
    async def lifespan(_: FastMCP[Any]) -> Any:
        entered: AbstractAsyncContextManager[Any] = author_lifespan(author)
        async with entered as result:
            yield result

    server: FastMCP[Any] = FastMCP(
        author.name,
        author.instructions,
        version=version_of(author),
        website_url=author.website_url,
        icons=author.icons,
        providers=author.providers,
        middleware=author_middleware(author),
        transforms=[*author.transforms, word],
        lifespan=lifespan,
        strict_input_validation=author.strict_input_validation,
        mask_error_details=True,
    )
    server.providers.remove(server.local_provider)  # empty, and with a second provider each call is a task group
    return server


def version_of(author: FastMCP[Any]) -> str | None:
    """The author's version; campus's own where he gave none, and FastMCP put its own in its place."""
    return metadata.version("campus") if author.version == fastmcp.__version__ else author.version


def put_first(server: FastMCP[Any], frame: Middleware) -> None:
    """Let `frame` stand before everything else that the server does."""
    server.middleware.insert(0, frame)


def offers_of(building: str, scope: str, tools: Mapping[str, Tool]) -> dict[str, Offer]:
    """Every tool's offer; where any tool says its access, all must: nothing is free by forgetting."""
    said = {name: declared_access(building, tool) for name, tool in tools.items()}
    silent = sorted(name for name, access in said.items() if access is None)
    if silent and len(silent) < len(said):
        raise LoadError(
            f"in building {building!r} {', '.join(silent)} say neither access() nor free(), while others do; "
            f"say it in the tool's meta, or in [buildings.{building}.tools]"
        )
    return {name: offer_of(building, scope, name, access) for name, access in said.items()}


def offer_of(building: str, scope: str, tool: str, access: Access | None) -> Offer:
    """A tool's offer: of the scope that it names itself, else of its building's."""
    return Offer(building, tool, access or FREE, (access and access.scope) or scope)


def with_requirements(tool: Tool, needs: str) -> str:
    """The tool's description, and after it what a call needs; what a key adds is left to a text that tells of keys itself."""
    text = (tool.description or "").strip() or tool.title or tool.name
    if needs.startswith("Free; ") and re.search(r"\bkeys?\b", text, re.IGNORECASE):
        needs = "Free."
    return f"{text}\n\n{needs}"


def declared_access(building: str, tool: Tool) -> Access | None:
    """What a tool says of its access; LoadError where it makes no sense."""
    try:
        return access_of(tool.meta)
    except ValueError as error:
        raise LoadError(f"tool {tool.name!r} of building {building!r}: {error}") from None
