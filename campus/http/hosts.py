"""Which Host headers are served: a page that rebinds its own name to our address names a host that is not ours."""

import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from starlette.types import Scope

from twins import Problem

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HOST = re.compile(rb"(\[[0-9a-f:.]+\]|[a-z0-9_-][a-z0-9._-]*?)\.?(?::[0-9]{0,5})?", re.IGNORECASE)


class Hosts:
    """The host of the public address, the loopback names, and the address at which the connection came in; any port."""

    def __init__(self, public_url: str, *, port: int) -> None:
        """`port` is the one that is listened on; it only makes the usual spellings quick to recognise."""
        public = urlsplit(public_url)
        name = public.hostname or "localhost"
        self._names = frozenset({f"[{name}]" if ":" in name else name, *LOOPBACK})
        ports = {"", f":{port}"} | ({f":{public.port}"} if public.port else set())
        self._usual = frozenset((name + end).encode("latin-1") for name in self._names for end in ports)

    def refusal(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Problem | None:
        """Why the request is not for us, else None. `headers` are the scope's, the last of each name."""
        sent: Sequence[tuple[bytes, bytes]] = scope["headers"]
        if len(headers) != len(sent) and [name for name, _ in sent].count(b"host") > 1:
            return Problem(400, "invalid_host", "The request has more than one Host header; send one.")
        host = headers.get(b"host")
        return None if host in self._usual else self._unusual(scope, host)

    def _unusual(self, scope: Scope, host: bytes | None) -> Problem | None:
        if host is None:
            return Problem(400, "invalid_host", "The request has no Host header; send one.")
        found = HOST.fullmatch(host)
        if found is None:
            return Problem(400, "invalid_host", "The Host header is not a host name with an optional port.")
        name = found[1].decode("ascii").lower()
        if name in self._names or _is_address(name, scope.get("server")):
            return None
        names = ", ".join(sorted(self._names))
        return Problem(421, "misdirected_request", f"That host is not served here; there are: {names}. The operator sets public_url.")


def _is_address(name: str, server: tuple[str, int | None] | None) -> bool:
    """Whether the name is the numeric address of the connection's own end: no rebinding can fake that."""
    try:
        return server is not None and _plain(name.strip("[]")) == _plain(server[0])
    except ValueError:
        return False


def _plain(address: str) -> IPv4Address | IPv6Address:
    """One form for an IPv4 address that arrives as such, or mapped into IPv6 by a socket for both."""
    plain = ip_address(address)
    return plain.ipv4_mapped or plain if isinstance(plain, IPv6Address) else plain
