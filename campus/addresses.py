"""Network addresses as text: read, compared, grouped by subscriber, written in a URL. Pure: no lookups."""

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

LOOPBACK_PROXIES = ("127.0.0.1", "::1")
"""The proxies that are trusted unless campus.toml names others: those of this machine."""
IPV6_SUBSCRIBER_BITS = 64
LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})")


class Listen(NamedTuple):
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        """As in a URL and in campus.toml."""
        return f"{url_host(self.host)}:{self.port}"


def read_listen(text: str) -> Listen:
    """Read `127.0.0.1:9100`, `[::1]:9100` or `localhost:9100`; ValueError says how to write it."""
    found = LISTEN.fullmatch(text)
    if found is None or int(found[3]) > 65535:
        raise ValueError(f"{text!r} is not an address to listen on; write it as 127.0.0.1:9100 or [::1]:9100")
    return Listen(found[1] or found[2], int(found[3]))


def url_host(host: str) -> str:
    """A host as it stands in a URL and in the Host header: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def plain_ip(text: str) -> IPv4Address | IPv6Address:
    """Parse an address; an IPv4 address that is mapped into IPv6 (::ffff:192.0.2.1) becomes IPv4. ValueError when it is none.

    A socket for both families reports IPv4 addresses mapped.
    """
    found = ip_address(text)
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def plain_address(text: str) -> str:
    """The same as text; anything else, such as a name, is returned unchanged."""
    try:
        return str(plain_ip(text))
    except ValueError:
        return text


def network_of(address: str) -> str:
    """By what limits per caller are counted: an IPv4 address, or the /64 of an IPv6 address, which belongs to one subscriber."""
    try:
        found = plain_ip(address)
    except ValueError:
        return address
    return str(IPv6Network((int(found), IPV6_SUBSCRIBER_BITS), strict=False)) if isinstance(found, IPv6Address) else str(found)


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
