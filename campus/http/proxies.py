"""Who calls, when the connection is a proxy's: uvicorn's own middleware reads the headers, and only those of trusted proxies."""

from collections.abc import Collection
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network

from starlette.types import Scope
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable
from uvicorn._types import Scope as UvicornScope
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from campus.addresses import plain_ip

SCHEMES = ("http", "https")
MAPPED_BITS = 96
KEPT = 4_096  # as many as the middleware keeps
LONGEST = 64  # characters of an address; what is longer is none, and is not kept


class Proxies:
    """The proxies in front of campus, addresses and networks. `address in proxies` tells whether one is trusted."""

    def __init__(self, trusted: Collection[str]) -> None:
        mapped = [str(_mapped(found)) for one in trusted if isinstance(found := ip_network(one), IPv4Network)]
        self._middleware = ProxyHeadersMiddleware(_nothing, trusted_hosts=[*trusted, *mapped])
        self._address = lru_cache(KEPT)(_address)

    def __contains__(self, address: object) -> bool:
        return isinstance(address, str) and address in self._middleware.trusted_hosts

    async def read(self, scope: Scope) -> None:
        """Put the caller's address and scheme into the scope, from X-Forwarded-For and X-Forwarded-Proto.

        Every proxy adds the address that it saw at the end of the list, so the caller's is the last that is not a proxy's.
        What is no address, and no scheme of HTTP, changes nothing.
        """
        peer, scheme = scope.get("client"), scope["scheme"]
        await self._middleware(scope, _receive, _send)  # type: ignore[arg-type]  # Starlette's scope is any mapping
        if scope["scheme"] not in SCHEMES:
            scope["scheme"] = scheme
        if (found := scope.get("client")) is not peer and found is not None:
            address = self._address(found[0]) if len(found[0]) <= LONGEST else None
            scope["client"] = (address, found[1]) if address else peer


def _address(text: str) -> str | None:
    try:
        return str(plain_ip(text))
    except ValueError:
        return None


def _mapped(network: IPv4Network) -> IPv6Network:
    """The network as a socket for both families reports its addresses: ::ffff:10.0.0.0/104."""
    return ip_network(f"::ffff:{network.network_address}/{MAPPED_BITS + network.prefixlen}")  # type: ignore[return-value]  # a colon


async def _nothing(scope: UvicornScope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """The app behind the middleware: the edge goes on by itself with the scope that was changed."""


async def _receive() -> None: ...


async def _send(message: object) -> None: ...
