"""Checks single values of campus.toml: each function returns the value or raises ValueError that says how to write it."""

import re
from ipaddress import ip_address
from typing import Any, get_args
from urllib.parse import SplitResult, urlsplit

NAME_OF_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?")
AS_ORIGIN = "write it as https://host or http://host:port, without a path or a user"
AS_PAGE = "write it as https://host/path"
AS_SHOP = "write it as https://host/path or mailto:name@host"


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
    """Scheme, host and port of the service, without a path."""
    parts = _split(url, AS_ORIGIN)
    if not parts.netloc.isascii():
        raise ValueError("write the host as callers send it, in ASCII (punycode)")
    if not _is_of_web(parts) or not _is_host(parts.hostname or "") or parts.port == 0 or "@" in parts.netloc:
        raise ValueError(AS_ORIGIN)
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(AS_ORIGIN)
    return url.rstrip("/")


def read_web_address(url: str) -> str:
    """An address that campus itself calls."""
    parts = _split(url, AS_PAGE)
    if not _is_of_web(parts) or parts.fragment:
        raise ValueError(AS_PAGE)
    return url.rstrip("/")


def read_shop(url: str) -> str:
    """Where a person buys: a page or a mailbox."""
    parts = _split(url, AS_SHOP)
    if not _is_of_web(parts) and not (parts.scheme == "mailto" and "@" in parts.path):
        raise ValueError(AS_SHOP)
    return url


def is_web_address(url: str) -> bool:
    """True if `read_web_address` accepts it."""
    try:
        read_web_address(url)
    except ValueError:
        return False
    return True


def read_number(value: Any, annotation: Any) -> Any:
    """The value; refuses true and false, which Python treats as 1 and 0, where a number is expected."""
    kinds = get_args(annotation) or (annotation,)
    if isinstance(value, bool) and bool not in kinds and (int in kinds or float in kinds):
        raise ValueError("true and false are not numbers; write a number such as 30")
    return value


def _split(url: str, said: str) -> SplitResult:
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
