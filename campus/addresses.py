"""Network addresses as text: how one is written in a URL, compared, grouped, and read from campus.toml. No lookups."""

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

LOOPBACK_PROXIES = ("127.0.0.1", "::1")
"""The proxies that are trusted unless campus.toml says otherwise: those of this machine."""
IPV6_SITE_BITS = 64
LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})")


class Listen(NamedTuple):
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        """As it is written in a URL and in campus.toml."""
        return f"{url_host(self.host)}:{self.port}"


def read_listen(text: str) -> Listen:
    """Read `127.0.0.1:9100`, `[::1]:9100` or `localhost:9100`; ValueError says how to write it."""
    found = LISTEN.fullmatch(text)
    if found is None or int(found[3]) > 65535:
        raise ValueError(f"{text!r} is not an address to listen on; write it as 127.0.0.1:9100 or [::1]:9100")
    return Listen(found[1] or found[2], int(found[3]))


def url_host(host: str) -> str:
    """A host as a URL and the Host header have it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def plain_ip(text: str) -> IPv4Address | IPv6Address:
    """The address, an IPv4 one also where a socket for both families reports it mapped into IPv6; ValueError when it is none."""
    found = ip_address(text)
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def plain_address(text: str) -> str:
    """The same as text; what is no address, such as a name, as it is."""
    try:
        return str(plain_ip(text))
    except ValueError:
        return text


def site_of(address: str) -> str:
    """What limits per caller count by: an IPv4 address, or the /64 of an IPv6 address, which is one subscriber's."""
    try:
        found = plain_ip(address)
    except ValueError:
        return address
    return str(IPv6Network((int(found), IPV6_SITE_BITS), strict=False)) if isinstance(found, IPv6Address) else str(found)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host: `localhost`, or a loopback address."""
    try:
        return plain_ip(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_network(text: str) -> str:
    """Check an address or a network such as `10.0.0.0/8`; ValueError says what is wrong."""
    try:
        ip_network(text)
    except ValueError as error:
        reason = f": {error}" if "host bits" in str(error) else ""
        raise ValueError(f"{text!r} is neither an address nor a network such as 10.0.0.0/8{reason}") from None
    return text
