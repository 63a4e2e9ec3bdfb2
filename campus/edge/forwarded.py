"""Who calls, when the connection is a proxy's: believed only from the proxies that are trusted."""

from collections.abc import Collection
from ipaddress import ip_address

from starlette.types import Scope

LOOPBACK_PROXIES = frozenset({"127.0.0.1", "::1"})


def believe(scope: Scope, trusted: Collection[str]) -> None:
    """Put the caller's address and scheme into the scope, from X-Forwarded-For and X-Forwarded-Proto.

    Every proxy adds the address that it saw at the end of the list; so the caller's is the last that is not a proxy's.
    """
    client = scope.get("client")
    if client is None or client[0] not in trusted:
        return
    scheme = _all(scope, b"x-forwarded-proto")[-1:]
    if scheme in (["http"], ["https"]):
        scope["scheme"] = scheme[0]
    for address in reversed(_all(scope, b"x-forwarded-for")):
        if not _is_address(address):
            return
        scope["client"] = (address, 0)
        if address not in trusted:
            return


def _all(scope: Scope, header: bytes) -> list[str]:
    lines = [value.decode("latin-1") for name, value in scope["headers"] if name == header]
    return [part.strip() for part in ",".join(lines).split(",")]


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
