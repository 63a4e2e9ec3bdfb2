"""Which Host and Origin headers are accepted, against DNS rebinding and web pages of others; and which proxies may name the caller."""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from urllib.parse import urlsplit

from starlette.types import Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from campus.addresses import plain_ip, url_host
from twins import Problem

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HOST = re.compile(rb"(\[[0-9a-f:.]+\]|[a-z0-9_-][a-z0-9._-]*?)\.?(?::[0-9]{0,5})?", re.IGNORECASE)
LOCAL_ORIGIN = re.compile(rb"https?://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
SCHEMES = ("http", "https")
MAPPED_BITS = 96
CACHED_ADDRESSES = 4_096  # as many as the middleware caches
LONGEST_ADDRESS = 64


class Hosts:
    """The hosts that are served, on any port: those of the public URLs, the loopback names, the address that the caller connected to."""

    def __init__(self, *public_urls: str, port: int) -> None:
        """`port` is the one that is listened on; it only makes the usual spellings quick to recognise."""
        public = [urlsplit(url) for url in public_urls]
        self._origins = frozenset(url.lower().encode("latin-1") for url in public_urls)
        self._names = frozenset({*(url_host(one.hostname or "localhost") for one in public), *LOOPBACK})
        ports = {"", f":{port}"} | {f":{one.port}" for one in public if one.port}
        self._usual = frozenset((name + end).encode("latin-1") for name in self._names for end in ports)

    def problem(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Problem | None:
        sent: Sequence[tuple[bytes, bytes]] = scope["headers"]
        if len(headers) != len(sent) and [name for name, _ in sent].count(b"host") > 1:
            return Problem(400, "invalid_host", "The request has more than one Host header; send one.")
        host = headers.get(b"host")
        return None if host in self._usual else self._problem_of_unusual(scope, host)

    def origin_problem(self, headers: Mapping[bytes, bytes]) -> Problem | None:
        """Why a web page of this origin may not call, else None: a page of the Host itself, which is checked apart, of a public URL,
        or of a program on this machine, as MCP's own SDKs allow it.
        """
        origin = headers[b"origin"].lower()
        own = {b"%b://%b" % (scheme, headers.get(b"host", b"").lower()) for scheme in (b"http", b"https")}
        if origin in self._origins or origin in own or LOCAL_ORIGIN.fullmatch(origin):
            return None
        if origin == b"null" and headers.get(b"sec-fetch-site") == b"same-origin":  # a form of a page that names nothing, as a browser says
            return None
        detail = "Web pages of that origin may not call this service, whose address is local. The operator sets an https public_url."
        return Problem(403, "origin_refused", detail)

    def _problem_of_unusual(self, scope: Scope, host: bytes | None) -> Problem | None:
        if host is None:
            return Problem(400, "invalid_host", "The request has no Host header; send one.")
        found = HOST.fullmatch(host)
        if found is None:
            return Problem(400, "invalid_host", "The Host header is not a host name with an optional port.")
        name = found[1].decode("ascii").lower()
        if name in self._names or _is_own_address(name, scope.get("server")):
            return None
        names = ", ".join(sorted(self._names))
        return Problem(421, "misdirected_request", f"That host is not served here; the hosts are: {names}. The operator sets public_url.")


def _is_own_address(name: str, server: tuple[str, int | None] | None) -> bool:
    try:
        return server is not None and plain_ip(name.strip("[]")) == plain_ip(server[0])
    except ValueError:
        return False


class Proxies:
    """The proxies in front of campus, by address or network. `address in proxies` tells whether one is trusted."""

    def __init__(self, trusted: Collection[str]) -> None:
        mapped = [str(_mapped(found)) for one in trusted if isinstance(found := ip_network(one), IPv4Network)]
        self._middleware = ProxyHeadersMiddleware(_no_app, trusted_hosts=[*trusted, *mapped])  # type: ignore[arg-type]  # Starlette's types
        self._address = lru_cache(CACHED_ADDRESSES)(_address)

    def __contains__(self, address: object) -> bool:
        return isinstance(address, str) and address in self._middleware.trusted_hosts

    async def read(self, scope: Scope) -> None:
        """Store the caller's address and scheme in the scope, from X-Forwarded-For and X-Forwarded-Proto.

        Each proxy appends the address that it saw, so the caller's is the last that is not a proxy's. A value that is no
        address, or no scheme of HTTP, is ignored.
        """
        peer = scope.get("client")
        scheme = scope["scheme"]
        await self._middleware(scope, _receive, _send)  # type: ignore[arg-type]  # Starlette's scope is any mapping
        if scope["scheme"] not in SCHEMES:
            scope["scheme"] = scheme
        if (found := scope.get("client")) is not peer and found is not None:
            address = self._address(found[0]) if len(found[0]) <= LONGEST_ADDRESS else None  # longer ones are not cached
            scope["client"] = (address, found[1]) if address else peer


def _address(text: str) -> str | None:
    try:
        return str(plain_ip(text))
    except ValueError:
        return None


def _mapped(network: IPv4Network) -> IPv6Network:
    """The network as a socket for both families reports its addresses: ::ffff:10.0.0.0/104."""
    return ip_network(f"::ffff:{network.network_address}/{MAPPED_BITS + network.prefixlen}")  # type: ignore[return-value]  # a colon


async def _no_app(scope: Scope, receive: Receive, send: Send) -> None:
    """The app inside the middleware does nothing: the edge continues with the changed scope."""


async def _receive() -> None: ...


async def _send(message: object) -> None: ...
