"""Which Host headers are accepted: protection against DNS rebinding."""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from starlette.types import Scope

from campus.addresses import plain_ip, url_host
from twins import Problem

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HOST = re.compile(rb"(\[[0-9a-f:.]+\]|[a-z0-9_-][a-z0-9._-]*?)\.?(?::[0-9]{0,5})?", re.IGNORECASE)


class Hosts:
    """The hosts that are served, on any port: that of the public URL, the loopback names, the address that the caller connected to."""

    def __init__(self, public_url: str, *, port: int) -> None:
        """`port` is the one that is listened on; it only makes the usual spellings quick to recognise."""
        public = urlsplit(public_url)
        name = url_host(public.hostname or "localhost")
        self._names = frozenset({name, *LOOPBACK})
        ports = {"", f":{port}"} | ({f":{public.port}"} if public.port else set())
        self._usual = frozenset((name + end).encode("latin-1") for name in self._names for end in ports)

    def problem(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Problem | None:
        """Why the request's Host is not served, else None. `headers` are the scope's, the last of each name."""
        sent: Sequence[tuple[bytes, bytes]] = scope["headers"]
        if len(headers) != len(sent) and [name for name, _ in sent].count(b"host") > 1:
            return Problem(400, "invalid_host", "The request has more than one Host header; send one.")
        host = headers.get(b"host")
        return None if host in self._usual else self._problem_of_unusual(scope, host)

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
    """Whether the name is the numeric address that the caller connected to, which no rebinding can fake."""
    try:
        return server is not None and plain_ip(name.strip("[]")) == plain_ip(server[0])
    except ValueError:
        return False
