"""Sessions with servers that were not written for campus: each claims to be able only what the caller of the moment is able to do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import mcp_types
from fastmcp.client.transports import ClientTransport, StdioTransport
from fastmcp.client.transports.base import SessionKwargs, TransportOptions
from fastmcp.server.dependencies import get_context
from mcp import ClientSession
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from typing_extensions import Unpack

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
        """Begin the session in the version that was negotiated."""
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
        """A new session, or that of a command that runs."""
        options = replace(transport_options or TransportOptions(), session_class=self._kind)
        async with self._transport.connect_session(transport_options=options, **session_kwargs) as session:
            yield session

    async def close(self) -> None:
        """End what the transport keeps open."""
        await self._transport.close()  # type: ignore[no-untyped-call]  # FastMCP's
