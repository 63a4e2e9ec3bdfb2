"""A building that forwards to another MCP server, at a URL or started as a command. Its tools stay listed while it is down."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO, cast

from fastmcp import FastMCP
from fastmcp.client.transports import ClientTransport, SSETransport, StdioTransport, StreamableHttpTransport
from fastmcp.mcp_config import RemoteMCPServer, StdioMCPServer
from fastmcp.server.providers.proxy import ProxyClient

from campus.catalog import bounded_lines
from campus.catalog.bounds import bounded_clients
from campus.catalog.foreign_servers import UNKNOWN, ForeignComponents, mirrored
from campus.catalog.foreign_sessions import ForeignTransport
from campus.catalog.stderr import LabelledStderr, given_secrets
from campus.catalog.watched import WatchedServer
from campus.config import ANSWER_LIMIT
from campus.observability import origin_of


class ProxiedServer(WatchedServer):
    """One remote MCP server."""

    components: ForeignComponents

    def __init__(self, name: str, target: Mapping[str, Any], *, answer_limit: int = ANSWER_LIMIT) -> None:
        """`answer_limit` are the bytes that it may send in one call, and for its whole list of tools."""
        address = origin_of(str(target["url"])) if "url" in target else f"the command {target['command']!r}"
        super().__init__(name, address, answer_limit=answer_limit, milliseconds=target.get("timeout"))
        self.is_probed = target.get("keep_alive", True)  # otherwise a probe would start the command each time
        self._command = target.get("command")
        self._stderr = LabelledStderr(name)
        # a caller's key, payment and other headers are meant for campus, and are not passed on
        transport = ForeignTransport(transport_to(target, self._stderr, limit=answer_limit))
        self._backend: ProxyClient[Any] = ProxyClient(transport, mode="auto", timeout=self.seconds, forward_incoming_headers=False)
        self.components = self.fresh()

    def fresh(self) -> ForeignComponents:
        """What it offers, before it is asked."""
        return ForeignComponents(self._backend.new, self)

    def server(self) -> FastMCP[Any]:
        """What it was when it was opened last."""
        return mirrored(self.name, self.components.described or UNKNOWN, self.components)

    def _last_words(self) -> str:
        """The last lines that the command wrote to stderr, which say more than that it has ended."""
        lines = self._stderr.last_lines
        lost = self._command and Path(self._command).is_absolute() and not Path(self._command).exists()
        hint = "; if `campus add` installed it, `campus add --locked` does so again" if lost else ""
        return (f"; it wrote: {' | '.join(lines)}" if lines else "") + hint


def transport_to(target: Mapping[str, Any], stderr: LabelledStderr, *, limit: int) -> ClientTransport:
    """The transport of a remote server, which passes on at most `limit` bytes; pydantic's ValidationError when a key has another type."""
    if "url" in target:
        remote = RemoteMCPServer(**target).to_transport()
        assert isinstance(remote, StreamableHttpTransport | SSETransport)
        remote.httpx_client_factory = bounded_clients(limit)
        return remote
    local = StdioMCPServer(**target)
    stderr.secrets = given_secrets({name: str(value) for name, value in local.env.items()}, local.args)
    bounded = ["-I", "-S", bounded_lines.__file__, str(limit), local.command, *local.args]
    log_file = cast(TextIO, stderr)  # a command needs its fileno() alone
    return StdioTransport(sys.executable, bounded, env=local.env, cwd=local.cwd, keep_alive=local.keep_alive, log_file=log_file)
