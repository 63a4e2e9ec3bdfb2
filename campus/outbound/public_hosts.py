"""Where a caller's URL may lead: its text is checked, its host looked up once, and every address refused that is not public."""

import logging
import re
import socket
import ssl
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Network, ip_address, ip_network
from threading import BoundedSemaphore
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

import anyio
import httpcore
import httpx
from anyio import CapacityLimiter, to_thread

from campus.addresses import plain_ip
from campus.errors import TargetRefused

log = logging.getLogger(__name__)

LONGEST_URL, LONGEST_NAME = 2048, 253
PORTS = {"http": 80, "https": 443}
OPEN_PORTS = frozenset({443, 8443})
CHARACTERS = re.compile(r"[!-\[\]-~]*")
"""Printable ASCII without the backslash, which some parsers read as a slash; so no space, tab or line end either."""
NAME = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""At least two labels, of which the last begins with a letter: no notation of an IP address matches."""
RESERVED = frozenset({
    *("alt", "arpa", "example", "internal", "invalid", "local", "localhost", "onion", "test"),  # by RFC and ICANN
    *("corp", "domain", "home", "host", "intranet", "lan", "localdomain", "mail", "private", "workgroup"),  # in use inside
})  # fmt: skip
CONNECT_SECONDS = 3.0  # Seconds for each address, so that one that does not answer leaves time for the next.
TRIED = 3  # How many addresses of a host are tried.
Resolve = Callable[[str, int], Sequence[str]]  # From host and port to addresses; it blocks, and raises OSError if there are none.
LOOKUP_SECONDS = 5.0
AT_ONCE = 16
ABANDONED = 4
"""A lookup that timed out cannot be stopped and keeps its thread: there may be this many times `at_once` threads in all."""
# The special networks, to which a caller's URL may not lead: our own list, because that of ipaddress changes by release.
GLOBAL_UNICAST = IPv6Network("2000::/3")
"""All of IPv6 that may be public. Outside it: loopback, private, link-local, multicast, the forms that carry an IPv4 address."""
KINDS = {
    "this network": "0.0.0.0/8",
    "private": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16",
    "shared by a carrier's customers": "100.64.0.0/10",
    "loopback": "127.0.0.0/8",
    "a cloud's metadata": "168.63.129.16/32",
    "link-local": "169.254.0.0/16",
    "Teredo": "2001::/32",
    "protocol assignments": "192.0.0.0/24 2001::/23",
    "documentation": "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20",
    "AS112": "192.31.196.0/24 192.175.48.0/24 2620:4f:8000::/48",
    "multicast relays": "192.52.193.0/24",
    "6to4": "2002::/16",
    "6to4 relays": "192.88.99.0/24",
    "benchmarking": "198.18.0.0/15",
    "multicast": "224.0.0.0/4",
    "reserved": "240.0.0.0/4",
    "the former test network": "3ffe::/16",
}
SPECIAL = [(ip_network(network), kind) for kind, networks in KINDS.items() for network in networks.split()]


class Target(NamedTuple):
    """Where a URL leads: the host in lower case, an IPv6 address without brackets; path and query as they are sent."""

    scheme: str
    host: str
    port: int
    path: bytes

    @property
    def authority(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == PORTS[self.scheme] else f"{name}:{self.port}"


@dataclass(frozen=True)
class UrlRules:
    """`own_host` is the service's host; `allowed_hosts` need neither https, nor an open port, nor a public name."""

    own_host: str
    allowed_hosts: Collection[str] = ()

    def check(self, url: str) -> Target:
        """Where the URL leads; raises TargetRefused with the first rule that it breaks."""
        if len(url) > LONGEST_URL:
            raise TargetRefused("length", f"The URL has {len(url)} characters; {LONGEST_URL} are the most.")
        if not CHARACTERS.fullmatch(url):
            raise TargetRefused(
                "characters", "The URL holds a space, a backslash or a character outside ASCII; percent-encode it, write the host as xn--…."
            )
        if "#" in url:
            raise TargetRefused("fragment", "The URL has a fragment, the part behind #; leave it out.")
        parts = _split(url)
        if "@" in parts.netloc:
            raise TargetRefused("userinfo", "The URL holds a user or a password before its host; leave them out.")
        if parts.scheme not in PORTS or not (host := parts.hostname):
            raise TargetRefused("scheme", "The URL does not begin with https:// and a host; write it as https://host/path.")
        if host not in self.allowed_hosts:
            self._check_public(parts, host)
        return _read_alike(url, parts, host)

    def _check_public(self, parts: SplitResult, host: str) -> None:
        if parts.scheme != "https":
            raise TargetRefused("scheme", "The URL begins with http://; only https:// is taken.")
        if (port := _port(parts)) is not None and port not in OPEN_PORTS:
            raise TargetRefused("port", f"The URL names port {port}; only 443 and 8443 are taken.")
        last = host.rstrip(".").rpartition(".")[2]
        if ":" in host or last[:1].isdigit():
            raise TargetRefused("literal", "The URL names an address; write the name of a public host instead.")
        if last in RESERVED:
            raise TargetRefused("reserved_name", f"Names that end in {last} are not public; write the name of a public host.")
        if not NAME.fullmatch(host) or len(host) > LONGEST_NAME:
            raise TargetRefused("name", "The URL's host is not a full public name; write one such as hooks.example.com.")
        if host == self.own_host:
            raise TargetRefused("own_host", "The URL leads back to this service; name another host.")


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise TargetRefused("url", "The URL cannot be read; write it as https://host/path.") from None


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:
        raise TargetRefused("port", "The URL's port is not a number up to 65535; only 443 and 8443 are taken.") from None


def _read_alike(url: str, parts: SplitResult, host: str) -> Target:
    """The target, if urllib and httpx read the URL alike, and its host and port are spelled in the usual way."""
    port = _port(parts)
    if port == 0:
        raise TargetRefused("port", "The URL names port 0; nothing can be reached there, name the port that the host listens on.")
    name = f"[{host}]" if ":" in host else host
    plain = name if port is None else f"{name}:{port}"
    target = _seen_by_httpx(url)
    if parts.netloc.lower() != plain or target is None or target[:3] != (parts.scheme, host, port or PORTS[parts.scheme]):
        raise TargetRefused("url", "The URL can be read in two ways; write it as https://host/path or https://host:8443/path.")
    return target


def _seen_by_httpx(url: str) -> Target | None:
    try:
        read = httpx.URL(url)
    except httpx.InvalidURL:
        return None
    return Target(read.scheme, read.raw_host.decode("ascii"), read.port or PORTS.get(read.scheme, 0), read.raw_path)


def system_resolver(host: str, port: int) -> Sequence[str]:
    return [str(place[0]) for *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class Resolver:
    """Looks up at most `at_once` names at once, each for at most `seconds`."""

    def __init__(
        self, resolve: Resolve = system_resolver, *, seconds: float = LOOKUP_SECONDS, at_once: int = AT_ONCE, threads: int | None = None
    ) -> None:
        self._resolve = resolve
        self._seconds = seconds
        self._limiter = CapacityLimiter(at_once)
        self._threads = BoundedSemaphore(threads or at_once * ABANDONED)

    def apart(self, *, at_once: int = AT_ONCE) -> "Resolver":
        return Resolver(self._resolve, seconds=self._seconds, at_once=at_once)

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """All addresses of a host, from one lookup; raises OSError if there are none, and TimeoutError after `seconds`."""
        with anyio.fail_after(self._seconds):
            found = await to_thread.run_sync(self._in_a_thread, host, port, limiter=self._limiter, abandon_on_cancel=True)
        if not found:
            raise OSError(f"{host} has no address")
        return found

    def _in_a_thread(self, host: str, port: int) -> Sequence[str]:
        if not self._threads.acquire(blocking=False):
            raise OSError("too many lookups get no answer")
        try:
            return self._resolve(host, port)
        finally:
            self._threads.release()


def special_network(address: str) -> str | None:
    try:
        found = ip_address(address)
    except ValueError:
        return "no address"
    if found.version == 6 and found not in GLOBAL_UNICAST:
        return "outside 2000::/3"
    return next((kind for network, kind in SPECIAL if found in network), None)


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """The network of the guarded client. Hosts in `allowed_hosts` may have any address; `network` makes the connections."""

    def __init__(self, resolver: Resolver, *, allowed_hosts: Collection[str] = (), network: httpcore.AsyncNetworkBackend) -> None:
        self._resolver = resolver
        self._allowed_hosts = allowed_hosts
        self._network = network

    def apart(self, *, lookups: int) -> "GuardedNetwork":
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
        return await self.stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self.stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self.stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        try:
            return await self.stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.stream.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        return self.stream.get_extra_info(info)


async def _checked(stream: httpcore.AsyncNetworkStream, host: str, address: str) -> httpcore.AsyncNetworkStream:
    """The stream, if it is connected to the address that was checked; raises TargetRefused otherwise."""
    peer = stream.get_extra_info("server_addr")
    if peer is not None and plain_ip(str(peer[0])) == plain_ip(address):
        return stream
    await stream.aclose()
    log.warning("connected elsewhere", extra={"host": host, "address": address, "peer": peer and peer[0]})
    raise TargetRefused("address", f"The connection to {host} did not lead to the address that was checked.")
