"""Other MCP servers, `{command = …}` and `{url = …}`: their tools stay listed while they are down."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO, cast

from fastmcp import FastMCP
from fastmcp.client.transports import ClientTransport, SSETransport, StdioTransport, StreamableHttpTransport
from fastmcp.mcp_config import RemoteMCPServer, StdioMCPServer
from fastmcp.server.providers.proxy import ProxyClient
from pydantic import BaseModel, ValidationError

from campus.addresses import is_web_address
from campus.config import ANSWER_LIMIT, sentence_of
from campus.errors import ConfigError
from campus.features.foreign_servers import bounded_lines
from campus.features.foreign_servers.http_clients import bounded_clients
from campus.features.foreign_servers.mirrored import UNKNOWN, ForeignComponents, mirrored
from campus.features.foreign_servers.sessions import ForeignTransport
from campus.features.foreign_servers.stderr import LabelledStderr, given_secrets
from campus.features.foreign_servers.watched import WatchedServer
from campus.observability import origin_of


def open_command(name: str, target: Mapping[str, Any], *, folder: Path, answer_limit: int, is_local: bool) -> "ProxiedServer":
    """The server that a command starts."""
    if str(target["command"]).startswith(("./", "../")):
        target = {**target, "command": str(folder / target["command"])}
    return _proxied(name, target, StdioMCPServer, answer_limit)


def open_address(name: str, target: Mapping[str, Any], *, folder: Path, answer_limit: int, is_local: bool) -> "ProxiedServer":
    """The server at an address."""
    return _proxied(name, target, RemoteMCPServer, answer_limit)


def _proxied(name: str, target: Mapping[str, Any], model: type[BaseModel], answer_limit: int) -> "ProxiedServer":
    """FastMCP accepts any key, and fails only when it connects."""
    where = f"buildings.{name}.server"
    known = [key for key in model.model_fields if key != "authentication"]  # which FastMCP does not read
    if unknown := sorted(target.keys() - set(known)):
        raise ConfigError(f"unknown key {unknown[0]!r} in {where}; the keys are: {', '.join(known)}")
    if "url" in target and not is_web_address(str(target["url"])):
        raise ConfigError(f"{where}.url ({origin_of(str(target['url']))}) is not the address of a server; write https://…/mcp")
    if target.get("auth") == "oauth":
        raise ConfigError(f"{where}.auth: a service has no browser to sign in with; write a token that does not expire")
    try:
        return ProxiedServer(name, target, answer_limit=answer_limit)
    except ValidationError as error:
        raise ConfigError(sentence_of(error.errors(include_url=False)[0], model, ("buildings", name, "server"))) from None


class ProxiedServer(WatchedServer):
    """One other MCP server."""

    def __init__(self, name: str, target: Mapping[str, Any], *, answer_limit: int = ANSWER_LIMIT) -> None:
        address = origin_of(str(target["url"])) if "url" in target else f"the command {target['command']!r}"
        super().__init__(name, address, answer_limit=answer_limit, milliseconds=target.get("timeout"))
        self.is_probed = target.get("keep_alive", True)  # otherwise a probe would start the command each time
        self._command = target.get("command")
        self._stderr = LabelledStderr(name)
        # a caller's key, payment and other headers are meant for campus, and are not passed on
        transport = ForeignTransport(transport_to(target, self._stderr, limit=answer_limit))
        self._backend: ProxyClient[Any] = ProxyClient(transport, mode="auto", timeout=self.seconds, forward_incoming_headers=False)
        self._components = ForeignComponents(self._backend.new, self)

    async def refresh(self) -> None:
        components = ForeignComponents(self._backend.new, self)
        await components.refresh()
        self._components = components

    async def has_changed(self) -> bool:
        return await self._components.has_changed()

    def server(self) -> FastMCP[Any]:
        return mirrored(self.name, self._components.described or UNKNOWN, self._components)

    def _last_words(self) -> str:
        lines = self._stderr.last_lines  # of the command, which say more than that it has ended
        lost = self._command and Path(self._command).is_absolute() and not Path(self._command).exists()
        hint = "; if `campus add` installed it, `campus add --locked` does so again" if lost else ""
        return (f"; it wrote: {' | '.join(lines)}" if lines else "") + hint


def transport_to(target: Mapping[str, Any], stderr: LabelledStderr, *, limit: int) -> ClientTransport:
    """The transport of such a server, which passes on at most `limit` bytes; pydantic's ValidationError when a key has another type."""
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
