"""The rules for a caller's URL that can be checked from its text alone. Pure: no name lookup, no connection."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import httpx

from campus.errors import TargetRefused

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


class Target(NamedTuple):
    """Where a URL leads: the host in lower case, an IPv6 address without brackets; path and query as they are sent."""

    scheme: str
    host: str
    port: int
    path: bytes

    @property
    def authority(self) -> str:
        """Host and port as the header Host has them."""
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
        """The rules from which allowed hosts are exempt."""
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
