"""A server of the mcp SDK itself (MCPServer) in this process, by FastMCP's proxy over sessions in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
from fastmcp import FastMCP
from fastmcp.client.transports import ClientTransport
from fastmcp.client.transports.base import SessionKwargs, TransportOptions
from fastmcp.server.providers.proxy import ProxyClient
from mcp import ClientSession
from mcp.server.mcpserver import MCPServer
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.memory import create_client_server_memory_streams
from typing_extensions import Unpack

from campus.catalog.foreign_servers import Described, ForeignComponents, mirrored
from campus.catalog.foreign_sessions import ForeignTransport
from campus.errors import LoadError, unwrapped_errors


class SessionsInMemory(ClientTransport):
    """Sessions with a server in this process. Each call has one; the server's lifespan is entered once, while campus serves.

    `_lowlevel_server`: the SDK offers no other way to the server that a session needs.
    """

    def __init__(self, server: MCPServer[Any]) -> None:
        self.low = server._lowlevel_server
        self._state: Any = None

    @asynccontextmanager
    async def lifespan(self, _: object) -> AsyncIterator[None]:
        """The server's own lifespan."""
        async with self.low.lifespan(self.low) as self._state:
            yield

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Unpack[SessionKwargs]
    ) -> AsyncIterator[ClientSession]:
        """A new session."""
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
    return mirrored(name, described, ForeignComponents(backend.new), lifespan=sessions.lifespan)
