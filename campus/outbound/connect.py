"""Connecting to a caller's host: one lookup, every address checked, a connection to a checked one, its other end checked again."""

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
"""For each address, so that a dead one does not use up the time of the next."""
TRIED = 3


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """The network below the client; `allowed_hosts` may be at any address, `network` makes the connections."""

    def __init__(self, lookup: Resolver, *, allowed_hosts: Collection[str] = (), network: httpcore.AsyncNetworkBackend) -> None:
        self._lookup = lookup
        self._allowed_hosts = allowed_hosts
        self._network = network

    def apart(self, *, lookups: int) -> "GuardedNetwork":
        """The same, with so many lookups at once in threads of its own."""
        return GuardedNetwork(self._lookup.apart(at_once=lookups), allowed_hosts=self._allowed_hosts, network=self._network)

    async def public_addresses(self, host: str, port: int) -> Sequence[str]:
        """Where the host is; TargetRefused when any of its addresses is not public, OSError when it has none."""
        addresses = await self._lookup.addresses(host, port)
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
        """Connect to the first of the host's addresses that answers."""
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
    """A connection before its handshake. It is closed when that fails or is cancelled: httpcore leaves it open when it is cancelled."""

    stream: httpcore.AsyncNetworkStream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # httpcore's, here and below
        """As the stream does."""
        return await self.stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """As the stream does."""
        await self.stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """As the stream does."""
        await self.stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        """The stream over TLS; it is closed when there is none."""
        try:
            return await self.stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.stream.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        """As the stream does."""
        return self.stream.get_extra_info(info)


async def _checked(stream: httpcore.AsyncNetworkStream, host: str, address: str) -> httpcore.AsyncNetworkStream:
    """The stream, when its other end is the address that was asked for."""
    peer = stream.get_extra_info("server_addr")
    if peer is not None and plain_ip(str(peer[0])) == plain_ip(address):
        return stream
    await stream.aclose()
    log.warning("connected elsewhere", extra={"host": host, "address": address, "peer": peer and peer[0]})
    raise TargetRefused("address", f"The connection to {host} did not lead to the address that was checked.")
