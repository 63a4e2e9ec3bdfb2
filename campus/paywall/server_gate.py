"""The outermost middleware of an author's server: it asks the gate of the campus that received a request, and hides what is not exposed."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import mcp_types
from fastmcp import FastMCP
from fastmcp.exceptions import FastMCPError, NotFoundError, PromptError, ResourceError, ToolError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from mcp import MCPError
from mcp.server.request_state import AESGCMRequestStateCodec, RequestStateBoundary, RequestStateCodec, RequestStateSecurity
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.types import Scope

from campus.context import CONTEXT, context_of
from campus.layout.apps import SCHEME as APPS
from campus.paywall.listing import Listings
from campus.paywall.mcp import MCP_GATE, McpPaywall, checked, current_scope
from twins import McpCall, McpResult, requested_with, runs_as_task, server_info, with_meta

GATED_METHODS = frozenset(
    ("tools/call", "tools/list", "resources/list", "resources/templates/list", "resources/read", "prompts/list", "prompts/get")
)
"""The requests that have a hook of their own."""
OPEN_METHODS = frozenset(
    (
        *("initialize", "server/discover", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"),
        *("subscriptions/listen",),
    )
)
"""The other requests of the protocol itself; those of extensions are open only where the operator exposes them."""
TASK_METHODS = frozenset(("tasks/get", "tasks/update", "tasks/cancel"))
COMPLETED = {"ref/prompt": "prompts", "ref/resource": "resources"}
"""What has to be exposed for an argument of it to be completed."""
ADDED = "campus.added"
"""In the scope of a request that calls a tool of tool search or code mode: what steps added to the results of the calls that it made."""


class ServerGate(Middleware):
    """The outermost middleware of one author's server, for every campus of the process that serves it.

    The campus of a request is in its scope. Without one the gate does nothing: in memory, on stdio, below an admitted call over
    HTTP, and in a server that is mounted in the one that a campus serves.
    """

    twin_safe = True

    def __init__(self) -> None:
        self._listings = Listings()

    def _asked(self, context: MiddlewareContext[Any]) -> McpPaywall | None:
        gate: McpPaywall | None = current_scope().get(MCP_GATE)
        around = context.fastmcp_context
        return gate if gate is not None and around is not None and around.fastmcp is gate.server else None

    async def on_list_tools(
        self, context: MiddlewareContext[mcp_types.ListToolsRequest], call_next: CallNext[mcp_types.ListToolsRequest, Sequence[Tool]]
    ) -> Sequence[Tool]:
        gate, tools = self._asked(context), await call_next(context)
        around = context.fastmcp_context
        request = around.request_context if around else None
        is_modern = request is not None and request.protocol_version in MODERN_PROTOCOL_VERSIONS
        return tools if gate is None else self._listings.of(gate.tools.listed(tools), widened=not is_modern)

    async def on_call_tool(
        self, context: MiddlewareContext[mcp_types.CallToolRequestParams], call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        gate = self._asked(context)
        scope = current_scope()
        if gate is None or context_of(scope).caller is not None:  # a call inside an admitted one: its failures belong to the outer call
            return await call_next(context)
        if context.message.name in gate.synthetic:
            return await self._searching(gate, context, call_next, scope)
        if ADDED in scope:
            return await self._found(gate, context, call_next, scope)
        return await self._gated(gate, context, call_next, scope)

    async def _searching(
        self, gate: McpPaywall, context: MiddlewareContext[Any], call_next: CallNext[Any, ToolResult], scope: Scope
    ) -> ToolResult:
        """The result of a tool of tool search or code mode, which is open to all; the calls that it makes come back here."""
        name = context.message.name
        context_of(scope).route = f"{gate.name}:{name}"
        added: list[Mapping[str, Any]] = scope.setdefault(ADDED, [])
        try:
            result = await call_next(context)
        except ToolError as error:
            if isinstance(error.__cause__, NotFoundError):  # it says that there is no such tool
                raise
            raise masked(error, f"Error calling tool {name!r}") from error.__cause__
        if not added or not isinstance(result, ToolResult) or added[-1].keys() <= (result.meta or {}).keys():
            return result
        return cast(ToolResult, with_meta(result, added[-1]))

    async def _found(
        self, gate: McpPaywall, context: MiddlewareContext[Any], call_next: CallNext[Any, ToolResult], scope: Scope
    ) -> ToolResult:
        """The result of a call that such a tool makes: admitted, and paid, as if the caller had made it, apart from all others."""
        around = context_of(scope)
        apart = {name: value for name, value in scope.items() if name != ADDED}
        apart[CONTEXT] = around.apart()
        with requested_with(apart):
            result = await self._gated(gate, context, call_next, apart)
        around.status = context_of(apart).status
        around.headers, around.rates = context_of(apart).headers, context_of(apart).rates
        if isinstance(result, ToolResult) and (added := context_of(apart).added):
            scope[ADDED].append(added)
        return result

    async def _gated(
        self, gate: McpPaywall, context: MiddlewareContext[Any], call_next: CallNext[Any, ToolResult], scope: Scope
    ) -> ToolResult:
        checker = await gate.checker_of(context.message.name)
        arguments = context.message.arguments or {}

        async def run() -> McpResult:
            return await checked(context, call_next, checker)

        call = McpCall(checker.operation, scope, arguments, _meta_of(context), run, is_direct=False)
        is_task = context.fastmcp_context is not None and runs_as_task(checker.operation.tool, context.fastmcp_context)
        # FastMCP passes on results of extensions too, without declaring it
        return cast(ToolResult, await gate(call, checker=checker, is_task=is_task))

    async def on_initialize(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """The handshake, with the title of campus.toml, and the website and the icon of the service where the server has none."""
        gate, result = self._asked(context), await call_next(context)
        if gate is None or not isinstance(result, mcp_types.InitializeResult):
            return result
        return result.model_copy(update={"server_info": identity(gate, result.server_info)})

    async def on_discover(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        gate, result = self._asked(context), await call_next(context)
        if gate is None or not isinstance(result, mcp_types.DiscoverResult):
            return result
        meta = result.meta or {}
        info = (
            mcp_types.Implementation.model_validate(meta[SERVER_INFO_META_KEY])
            if SERVER_INFO_META_KEY in meta
            else server_info(gate.server)
        )
        shown = identity(gate, info).model_dump(by_alias=True, mode="json", exclude_none=True)
        return result.model_copy(update={"meta": meta | {SERVER_INFO_META_KEY: shown}})

    async def on_request(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Refuses requests of extensions that the operator does not expose, and completes no argument of what is hidden."""
        gate = None if context.method in GATED_METHODS else self._asked(context)
        if gate is None:
            return await call_next(context)
        if context.method == "completion/complete":
            kind = (context.message.get("ref") or {}).get("type") if isinstance(context.message, Mapping) else None
            if kind in COMPLETED and COMPLETED[kind] not in gate.exposed:
                return mcp_types.CompleteResult(completion=mcp_types.Completion(values=[]))
        elif context.method not in OPEN_METHODS and "methods" not in gate.exposed and not (gate.entry and context.method in TASK_METHODS):
            raise MCPError(code=mcp_types.METHOD_NOT_FOUND, message="Method not found", data=context.method)
        return await call_next(context)

    async def on_list_resources(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Sequence[Any]]) -> Sequence[Any]:
        """The resources that are exposed; apps, the pages on which hosts show results, always are."""
        gate, found = self._asked(context), await call_next(context)
        return found if gate is None else [one for one in found if self._is_open(gate, "resources", str(one.uri))]

    async def on_list_resource_templates(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Sequence[Any]]) -> Sequence[Any]:
        gate, found = self._asked(context), await call_next(context)
        return found if gate is None or "resources" in gate.exposed else []

    async def on_list_prompts(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Sequence[Any]]) -> Sequence[Any]:
        gate, found = self._asked(context), await call_next(context)
        return found if gate is None or "prompts" in gate.exposed else []

    async def on_read_resource(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        uri = str(context.message.uri)
        return await self._read(context, call_next, "resources", uri, f"Error reading resource {uri!r}")

    async def on_get_prompt(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        name = context.message.name
        return await self._read(context, call_next, "prompts", name, f"Error rendering prompt {name!r}")

    async def _read(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any], kind: str, name: str, crash: str) -> Any:
        gate = self._asked(context)
        if gate is None or context_of(current_scope()).caller is not None:
            return await call_next(context)
        if not self._is_open(gate, kind, name):
            raise NotFoundError(f"Unknown {kind.removesuffix('s')}: {name!r}")
        try:
            return await call_next(context)
        except (ResourceError, PromptError) as error:
            raise masked(error, crash) from error.__cause__

    @staticmethod
    def _is_open(gate: McpPaywall, kind: str, name: str) -> bool:
        return kind in gate.exposed or (kind == "resources" and name.startswith(APPS))


def identity(gate: McpPaywall, info: mcp_types.Implementation) -> mcp_types.Implementation:
    website, icons = info.website_url or gate.website, info.icons or list(gate.icons) or None
    return info.model_copy(update={"title": gate.title or info.title, "website_url": website, "icons": icons})


ErrorT = TypeVar("ErrorT", bound=FastMCPError)


def masked(error: ErrorT, sentence: str) -> ErrorT:
    """The error without the text of an exception that its author did not mean for callers."""
    return error if error.__cause__ is None else type(error)(sentence)


class StatesOfCampus:
    """Seals what a tool gives its caller to send back with the keys of the campus that was asked, which all of its processes know.

    FastMCP's own keys are those of one process. They are used where no campus was asked.
    """

    def __init__(self) -> None:
        self._own = AESGCMRequestStateCodec([secrets.token_bytes(32)])

    def _codec(self) -> RequestStateCodec:
        gate: McpPaywall | None = current_scope().get(MCP_GATE)
        return (gate and gate.states) or self._own

    def seal(self, payload: bytes) -> str:
        return self._codec().seal(payload)

    def unseal(self, token: str) -> bytes:
        return self._codec().unseal(token)


GATES: WeakKeyDictionary[FastMCP[Any], ServerGate] = WeakKeyDictionary()


def gate_of(server: FastMCP[Any], building: str) -> ServerGate:
    """The gate of an author's server, made when it is first served, as this building.

    Request states are sealed by campus, unless the author chose how: `_request_state_security`, and mcp's `middleware` below FastMCP's,
    since there is no other way once a server is made. Where they are missing, FastMCP's own keys seal.
    """
    if (known := GATES.get(server)) is not None:
        return known
    low: Any = getattr(server, "_mcp_server", None)
    if getattr(server, "_request_state_security", server) is None and hasattr(low, "middleware"):
        boundary = RequestStateBoundary(RequestStateSecurity(codec=StatesOfCampus(), audience=building), default_audience=None)
        low.middleware = [boundary if isinstance(each, RequestStateBoundary) else each for each in low.middleware]
    GATES[server] = ServerGate()
    return GATES[server]


def _meta_of(context: MiddlewareContext[Any]) -> Mapping[str, Any]:
    """The request's `_meta`, from the session: FastMCP's message keeps known members only."""
    around = context.fastmcp_context
    request = around.request_context if around else None
    return (request.meta or {}) if request else {}
