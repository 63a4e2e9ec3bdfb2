"""Trusted proxies: uvicorn's middleware reads X-Forwarded-For and -Proto from them; addresses are normalized before they are compared."""

from collections.abc import Collection
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network

from starlette.types import Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from campus.addresses import plain_ip

SCHEMES = ("http", "https")
MAPPED_BITS = 96
CACHED_ADDRESSES = 4_096  # as many as the middleware caches
LONGEST_ADDRESS = 64


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
        peer, scheme = scope.get("client"), scope["scheme"]
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
