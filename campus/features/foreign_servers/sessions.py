"""Sessions with servers that were not written for campus: each claims to be able only what the caller of the moment is able to do.

A server of the mcp SDK itself (MCPServer) is served by such sessions, in memory.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import mcp_types
from fastmcp import FastMCP
from fastmcp.client.transports import ClientTransport, StdioTransport
from fastmcp.client.transports.base import SessionKwargs, TransportOptions
from fastmcp.server.dependencies import get_context
from fastmcp.server.providers.proxy import ProxyClient
from mcp import ClientSession
from mcp.server.mcpserver import MCPServer
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.memory import create_client_server_memory_streams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from typing_extensions import Unpack

from campus.errors import LoadError, unwrapped_errors
from campus.features.foreign_servers.mirrored import Described, ForeignComponents, mirrored
from campus.features.foreign_servers.watched import Upstream

ABILITIES = frozenset(("elicitation", "roots", "sampling"))
"""By which a server asks its client; campus itself can do none of them."""


class CallersSession(ClientSession):
    """A session whose server is told of each caller what that caller can do: sampling, elicitation and roots, and nothing if nobody calls.

    A server chooses its tools by that, and asks whoever can answer. Results are passed on as they are; whoever called checks them.
    `_build_capabilities` and `_stamp`: mcp fixes both when the session begins. Without them, every caller is told of alike.
    """

    async def validate_tool_result(self, name: str, result: mcp_types.CallToolResult) -> None:
        """Nothing is checked here."""

    def _build_capabilities(self, version: str) -> mcp_types.ClientCapabilities:
        return callers_capabilities(version)

    def adopt(self, result: mcp_types.InitializeResult | mcp_types.DiscoverResult) -> None:
        super().adopt(result)
        stamp, version = getattr(self, "_stamp", None), self.protocol_version
        if stamp is None:
            return

        def stamped(data: dict[str, Any], options: Any) -> None:
            stamp(data, options)
            if version in MODERN_PROTOCOL_VERSIONS:  # the others are told once, when the session begins
                can = callers_capabilities(version)
                data["params"]["_meta"][mcp_types.CLIENT_CAPABILITIES_META_KEY] = can.model_dump(
                    by_alias=True, mode="json", exclude_none=True
                )

        self._stamp = stamped


class SharedSession(CallersSession):
    """The one session that a command has for all callers. In a version with a handshake, it can tell none of them from the others."""

    def _build_capabilities(self, version: str) -> mcp_types.ClientCapabilities:
        return super()._build_capabilities(version) if version in MODERN_PROTOCOL_VERSIONS else mcp_types.ClientCapabilities()


def callers_capabilities(version: str) -> mcp_types.ClientCapabilities:
    """How the caller of now can be asked by a server that speaks `version`; not at all if the caller's version asks in another way."""
    try:
        request = get_context().request_context
    except RuntimeError:  # there is no caller
        request = None
    can = request.session.client_capabilities if request else None
    if request is None or can is None or (request.protocol_version in MODERN_PROTOCOL_VERSIONS) != (version in MODERN_PROTOCOL_VERSIONS):
        return mcp_types.ClientCapabilities()
    return mcp_types.ClientCapabilities(**{name: getattr(can, name) for name in ABILITIES})


class ForeignTransport(ClientTransport):
    """Another transport, whose sessions are such sessions."""

    def __init__(self, transport: ClientTransport) -> None:
        self._transport = transport
        self._kind = SharedSession if isinstance(transport, StdioTransport) else CallersSession
        self.legacy_only = transport.legacy_only

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Unpack[SessionKwargs]
    ) -> AsyncIterator[ClientSession]:
        options = replace(transport_options or TransportOptions(), session_class=self._kind)
        async with self._transport.connect_session(transport_options=options, **session_kwargs) as session:
            yield session

    async def close(self) -> None:
        await self._transport.close()  # type: ignore[no-untyped-call]  # FastMCP's


class SessionsInMemory(ClientTransport):
    """Sessions with a server in this process. Each call has one; the server's lifespan is entered once, while campus serves.

    `_lowlevel_server`: the SDK offers no other way to the server that a session needs.
    """

    def __init__(self, server: MCPServer[Any]) -> None:
        self.low = server._lowlevel_server
        self._state: Any = None

    @asynccontextmanager
    async def lifespan(self, _: object) -> AsyncIterator[None]:
        async with self.low.lifespan(self.low) as self._state:
            yield

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Unpack[SessionKwargs]
    ) -> AsyncIterator[ClientSession]:
        kind = (transport_options or TransportOptions()).session_class
        with unwrapped_errors():
            async with create_client_server_memory_streams() as (client, server), anyio.create_task_group() as tasks:
                tasks.start_soon(partial(serve_dual_era_loop, self.low, *server, lifespan_state=self._state))
                async with kind(*client, **session_kwargs) as session:
                    yield session
                tasks.cancel_scope.cancel()


def over_sdk_server(name: str, author: MCPServer[Any]) -> FastMCP[Any]:
    """A FastMCP server that is to clients what an SDK server is. LoadError if it has a login of its own."""
    if author.settings.auth is not None:
        raise LoadError(f"building {name!r} has auth=, which campus does not ask; remove it: campus controls the access to its tools")
    sessions = SessionsInMemory(author)
    backend: ProxyClient[Any] = ProxyClient(ForeignTransport(sessions), mode="auto", forward_incoming_headers=False)
    low = sessions.low
    completes = low.get_request_handler("completion/complete") is not None
    described = Described(low.server_info, low.instructions, completes=completes)
    return mirrored(name, described, ForeignComponents(backend.new, Upstream()), lifespan=sessions.lifespan)
