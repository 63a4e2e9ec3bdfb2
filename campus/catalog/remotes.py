"""A building that forwards to another MCP server, at a URL or started as a command. Its tools stay listed while it is down."""

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO, cast

import anyio
from fastmcp import FastMCP
from fastmcp.client.transports import ClientTransport, SSETransport, StdioTransport, StreamableHttpTransport
from fastmcp.mcp_config import RemoteMCPServer, StdioMCPServer
from fastmcp.server.providers.proxy import ProxyClient

from campus.backoff import RECONNECTS
from campus.catalog import bounded_lines
from campus.catalog.bounds import bounded_clients
from campus.catalog.foreign_servers import Described, ForeignComponents, Upstream, mirrored
from campus.catalog.foreign_sessions import ForeignTransport
from campus.catalog.stderr import LabelledStderr, given_secrets
from campus.config import ANSWER_LIMIT
from campus.errors import CampusError, Unreachable
from campus.observability import origin_of

PROBE_SECONDS = 60.0
"""How long a later attempt waits: a command may have to download itself first."""
BETWEEN_PROBES = 15.0
ANSWER_MILLISECONDS = 120_000
"""How long an answer may take where `timeout` says nothing; in milliseconds, as in clients' configurations."""
log = logging.getLogger(__name__)


class ProxiedServer(Upstream):
    """One remote server. `address` is where it is, without parts that may be secret."""

    def __init__(self, name: str, target: Mapping[str, Any], *, answer_limit: int = ANSWER_LIMIT) -> None:
        """`answer_limit` are the bytes that it may send in one call, and for its whole list of tools."""
        address = origin_of(str(target["url"])) if "url" in target else f"the command {target['command']!r}"
        super().__init__(name, address, answer_limit=answer_limit, seconds=(target.get("timeout") or ANSWER_MILLISECONDS) / 1000)
        self.is_probed = target.get("keep_alive", True)  # otherwise a probe would start the command each time
        self.rejection: str | None = None
        """Why its tools cannot be served although it answers."""
        # a caller's key, payment and other headers are meant for campus, and are not passed on
        transport = ForeignTransport(transport_to(name, target, limit=answer_limit))
        self._backend: ProxyClient[Any] = ProxyClient(transport, mode="auto", timeout=self.seconds, forward_incoming_headers=False)
        self.components = ForeignComponents(self._backend.new, self)

    def findings(self) -> Sequence[str]:
        """Why it cannot be reached, or why its tools cannot be served; empty while all is well."""
        hint = "; the log has what it wrote to stderr" if self.address.startswith("the command") else ""
        found = [f"{self.address} cannot be reached ({self.failure}{hint}); campus keeps trying"] if self.failure else []
        return [*found, *([self.rejection] if self.rejection else [])]

    def reject(self, error: Exception) -> str:
        """Note why its tools cannot be served, log it if it is new, and return it."""
        foreseen = isinstance(error, CampusError)
        fault = f"its tools cannot be served ({type(error).__name__}); the log has the cause"
        reason = str(error) if foreseen else f"building {self.name!r}: {fault}"
        if reason != self.rejection:
            cause = None if foreseen else error
            log.error("building cannot be opened", exc_info=cause, extra={"building": self.name, "reason": str(error)[:1_000]})
        self.rejection = reason
        return reason

    def server(self) -> FastMCP[Any]:
        """What it was when it was opened last."""
        described = self.components.described or Described(None, None, completes=False)
        return mirrored(self.name, described, self.components)

    async def open(self, *, seconds: float) -> None:
        """Ask what it is; Unreachable when it does not answer in time, LoadError for a list of tools that cannot be served."""
        components = ForeignComponents(self._backend.new, self)
        try:
            with anyio.fail_after(seconds):
                await components.refresh()
        except CampusError:
            self.mark_reachable()
            raise
        except Exception as error:  # transports may raise any exception of their libraries
            self.mark_unreachable(error)
            raise Unreachable(f"building {self.name!r}: {self.address} cannot be reached ({self.failure})") from error
        self.components = components
        self.mark_reachable()

    async def changed(self) -> None:
        """Probe it from time to time, until it says something else than when it was opened."""
        failures = 1
        while True:
            if self.failure:
                await RECONNECTS.sleep(failures)
            else:
                with anyio.move_on_after(BETWEEN_PROBES):
                    await self._fails.wait()
            if self.failure or self.is_probed:
                try:
                    with anyio.fail_after(PROBE_SECONDS):
                        has_changed = await self.components.has_changed()
                    self.mark_reachable()
                    if has_changed:
                        return
                except CampusError as error:
                    self.mark_reachable()
                    self.reject(error)
                except Exception as error:  # as above
                    self.mark_unreachable(error)
            failures = failures + 1 if self.failure else 1


def transport_to(name: str, target: Mapping[str, Any], *, limit: int) -> ClientTransport:
    """The transport of a remote server, which passes on at most `limit` bytes; pydantic's ValidationError when a key has another type."""
    if "url" in target:
        remote = RemoteMCPServer(**target).to_transport()
        assert isinstance(remote, StreamableHttpTransport | SSETransport)
        remote.httpx_client_factory = bounded_clients(limit)
        return remote
    local = StdioMCPServer(**target)
    secrets = given_secrets({name: str(value) for name, value in local.env.items()}, local.args)
    stderr = cast(TextIO, LabelledStderr(name, secrets=secrets))  # a command needs its fileno() alone
    bounded = ["-I", "-S", bounded_lines.__file__, str(limit), local.command, *local.args]
    return StdioTransport(sys.executable, bounded, env=local.env, cwd=local.cwd, keep_alive=local.keep_alive, log_file=stderr)
