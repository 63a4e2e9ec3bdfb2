"""Connects to a caller's host: looks its name up once, and refuses every address, looked up or literal, that is not public."""

import logging
import ssl
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import httpcore

from campus.addresses import plain_ip
from campus.errors import TargetRefused
from campus.outbound.resolver import Resolver
from campus.outbound.special_addresses import special_network

log = logging.getLogger(__name__)

CONNECT_SECONDS = 3.0
"""For each address, so that one that does not answer leaves time for the next."""
TRIED = 3
"""Addresses of a host that are tried."""


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """The network of the guarded client. Hosts in `allowed_hosts` may have any address; `network` makes the connections."""

    def __init__(self, resolver: Resolver, *, allowed_hosts: Collection[str] = (), network: httpcore.AsyncNetworkBackend) -> None:
        self._resolver = resolver
        self._allowed_hosts = allowed_hosts
        self._network = network

    def apart(self, *, lookups: int) -> "GuardedNetwork":
        """The same, with its own threads for at most `lookups` name lookups at once."""
        return GuardedNetwork(self._resolver.apart(at_once=lookups), allowed_hosts=self._allowed_hosts, network=self._network)

    async def public_addresses(self, host: str, port: int) -> Sequence[str]:
        """The host's addresses; raises TargetRefused if one of them is not public, OSError if there are none."""
        addresses = await self._resolver.addresses(host, port)
        if host not in self._allowed_hosts:
            for address in addresses:
                if kind := special_network(address):
                    log.info("target refused", extra={"host": host, "address": address, "network": kind})
                    raise TargetRefused("address", f"The name {host} does not lead to the public internet; name a public host.")
        return addresses

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first of the host's addresses that accepts a connection."""
        try:
            addresses = await self.public_addresses(host, port)
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"looking up {host} took too long") from None
        except OSError as error:
            raise httpcore.ConnectError(f"{host} cannot be looked up: {error}") from None
        failed: Exception = httpcore.ConnectError(f"{host} cannot be reached")
        for address in addresses[:TRIED]:
            try:
                stream = await self._network.connect_tcp(address, port, CONNECT_SECONDS)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
            else:
                return Connection(await _checked(stream, host, address))
        raise failed


@dataclass(frozen=True)
class Connection(httpcore.AsyncNetworkStream):
    """A connection before its TLS handshake. Closed if that fails or is cancelled: httpcore leaves it open when it is cancelled."""

    stream: httpcore.AsyncNetworkStream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # httpcore's, here and below
        """As the wrapped stream."""
        return await self.stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """As the wrapped stream."""
        await self.stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """As the wrapped stream."""
        await self.stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        """The stream over TLS; it is closed if the handshake fails."""
        try:
            return await self.stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.stream.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        """As the wrapped stream."""
        return self.stream.get_extra_info(info)


async def _checked(stream: httpcore.AsyncNetworkStream, host: str, address: str) -> httpcore.AsyncNetworkStream:
    """The stream, if it is connected to the address that was checked; raises TargetRefused otherwise."""
    peer = stream.get_extra_info("server_addr")
    if peer is not None and plain_ip(str(peer[0])) == plain_ip(address):
        return stream
    await stream.aclose()
    log.warning("connected elsewhere", extra={"host": host, "address": address, "peer": peer and peer[0]})
    raise TargetRefused("address", f"The connection to {host} did not lead to the address that was checked.")
