"""Values of campus.toml and of requests: hosts, network addresses, URLs and numbers, read and compared. Pure: no lookups.

Each read_… returns the value or raises ValueError that says how to write it.
"""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin
from urllib.parse import SplitResult, urlsplit

LOOPBACK_PROXIES = ("127.0.0.1", "::1")  # The proxies that are trusted unless campus.toml names others: those of this machine.
IPV6_SUBSCRIBER_BITS = 64
LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})")
NAME_OF_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?")
AS_ORIGIN = "write it as https://host or http://host:port, without a path or a user"
AS_PAGE = "write it as https://host/path"
AS_CONTACT = "write mailto:name@host, tel:+… or the https address of a page"
AS_SHOP = "write it as https://host/path or mailto:name@host"


class Listen(NamedTuple):
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int

    def __str__(self) -> str:
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
    """Parse an address; an IPv4 address that is mapped into IPv6 (::ffff:192.0.2.1) becomes IPv4. Raises ValueError for any other text.

    A socket for both families reports IPv4 addresses mapped.
    """
    found = ip_address(text)
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def plain_address(text: str) -> str:
    """The parsed address as text; any other text, such as a name, is returned unchanged."""
    try:
        return str(plain_ip(text))
    except ValueError:
        return text


@lru_cache(maxsize=4_096)  # 8 µs, and 30 µs for IPv6, for each call of a caller otherwise
def network_of(address: str) -> str:
    """What limits per caller count: an IPv4 address, or the /64 of an IPv6 address, which belongs to one subscriber."""
    try:
        found = plain_ip(address)
    except ValueError:
        return address
    return str(IPv6Network((int(found), IPV6_SUBSCRIBER_BITS), strict=False)) if isinstance(found, IPv6Address) else str(found)


def is_loopback(host: str) -> bool:
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


def read_listening_host(host: str) -> str:
    """An address or a name of this machine; `[::1]` is taken for `::1`."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not _is_host(bare):
        raise ValueError(
            f"{host!r} is neither an address nor a name; write it as 127.0.0.1, ::1 or localhost, without http:// and without a port"
        )
    return bare


def read_exempt_host(host: str) -> str:
    """A host as in the URLs of callers, in lower case."""
    if not _is_host(host) or host != host.lower():
        raise ValueError(f"{host!r} is not a host; write its name or address alone, in lower case, without https:// and without a port")
    return host


def read_origin(url: str) -> str:
    """Scheme, host and port of the service, in lower case and without a path."""
    parts = _split(url, AS_ORIGIN)
    if not parts.netloc.isascii():
        raise ValueError("write the host as callers send it, in ASCII (punycode)")
    if not _is_of_web(parts) or not _is_host(parts.hostname or "") or parts.port == 0 or "@" in parts.netloc:
        raise ValueError(AS_ORIGIN)
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(AS_ORIGIN)
    return f"{parts.scheme}://{parts.netloc.lower().removesuffix(':')}"


def read_web_address(url: str) -> str:
    parts = _split(url, AS_PAGE)
    if not _is_of_web(parts) or parts.fragment:
        raise ValueError(AS_PAGE)
    return url.rstrip("/")


def read_shop(url: str) -> str:
    parts = _split(url, AS_SHOP)
    if not _is_of_web(parts) and not (parts.scheme == "mailto" and "@" in parts.path):
        raise ValueError(AS_SHOP)
    return url


def read_contact(url: str) -> str:
    """Where people report something: a page with https, a mailbox or a telephone."""
    parts = _split(url, AS_CONTACT)
    is_page = parts.scheme == "https" and bool(parts.hostname)
    is_direct = parts.scheme in ("mailto", "tel") and bool(parts.path)
    if not (is_page or is_direct) or not url.isprintable() or " " in url:
        raise ValueError(AS_CONTACT)
    return url


def is_web_address(url: str) -> bool:
    try:
        read_web_address(url)
    except ValueError:
        return False
    return True


def read_number(value: Any, annotation: Any) -> Any:
    """The value for a field of this type; refuses what pydantic would convert: true to 1, "8000" to 8000, "no" and 0 to false."""
    kinds = set(get_args(annotation) if get_origin(annotation) in (Union, UnionType) else [annotation]) - {NoneType}
    if isinstance(value, bool) and kinds & {int, float} and bool not in kinds:
        raise ValueError("true and false are not numbers; write a number such as 30")
    if isinstance(value, str) and kinds and kinds <= {int, float}:
        raise ValueError(f"write a {'' if float in kinds else 'whole '}number, without quotes")
    if isinstance(value, str | int | float) and not isinstance(value, bool) and kinds == {bool}:
        raise ValueError("write true or false, without quotes")
    return value


def _split(url: str, said: str) -> SplitResult:
    if " " in url or not url.isprintable():  # urlsplit leaves some of them out
        raise ValueError(said)
    try:
        parts = urlsplit(url)
        _ = parts.port  # read, and so checked, only when it is asked for
    except ValueError:
        raise ValueError(said) from None
    return parts


def _is_of_web(parts: SplitResult) -> bool:
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _is_host(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return NAME_OF_HOST.fullmatch(host) is not None
    return True
