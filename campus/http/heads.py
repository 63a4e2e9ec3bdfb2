"""The heads of responses as bytes: made once for all responses that have the same headers, as most do."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple

Header = tuple[bytes, bytes]

PHRASES = {each.value: each.phrase for each in HTTPStatus}
STATUS_LINES = {status: f"HTTP/1.1 {status} {PHRASES.get(status, '')}\r\n".encode("ascii") for status in range(100, 600)}

USUAL_NAMES = frozenset(
    b"access-control-allow-origin access-control-expose-headers allow cache-control content-length content-security-policy"
    b" content-type date etag link location mcp-session-id referrer-policy retry-after strict-transport-security vary warning"
    b" www-authenticate x-content-type-options x-request-id".split()
)
"""Names of headers that responses here have, in lower case."""

CLOSE: Header = (b"connection", b"close")
CHUNKED: Header = (b"transfer-encoding", b"chunked")
CACHED_RESPONSES = 1_000
LONGEST_KEPT = 8_192
"""Bytes of headers that are kept. Longer ones repeat what a caller sent, such as a query in a Location: they would take 100 MB."""


def lines_of(headers: Sequence[Header]) -> bytes:
    """Headers as bytes, a line each; RuntimeError where one contains a line break, which would split the response."""
    lines = b"\r\n".join([*map(b": ".join, headers), b""])
    if len(lines) - len(lines.translate(None, b"\r\n\0")) != 2 * len(headers):
        raise RuntimeError("a header of the response contains a line break or a NUL")
    return lines


class Head(NamedTuple):
    """What an app's headers come to: their lines, the length of the body if they tell it, and whether the connection is closed then."""

    lines: bytes
    length: int | None
    closes: bool


def head_of(status: int, headers: Sequence[Header]) -> Head:
    """The head of a response with these headers."""
    named = dict(headers)
    if not (USUAL_NAMES.issuperset(named) or b"".join(named).islower()):  # ASGI wants lower case, and not every app complies
        headers = [(name.lower(), value) for name, value in headers]
        named = dict(headers)
    kept = [header for header in headers if header[0] != CHUNKED[0]]  # ResponseCycle adds it where it is needed
    closes = any(name == CLOSE[0] and b"close" in value.lower() for name, value in kept)
    length = named.get(b"content-length")
    return Head(STATUS_LINES[status] + lines_of(kept), None if length is None else int(length), closes)


def size_of(headers: Sequence[Header]) -> int:
    """The bytes of all names and values."""
    return sum(len(name) + len(value) for name, value in headers)


class KeptHeads(dict[tuple[int, Sequence[Header]], Head]):
    """The heads of the latest responses, without long ones, by status and headers: looking one up makes it. A list cannot be a key."""

    def __missing__(self, key: tuple[int, Sequence[Header]]) -> Head:
        found = head_of(*key)
        if len(found.lines) <= LONGEST_KEPT:
            if len(self) == CACHED_RESPONSES:
                self.clear()
            self[key] = found
        return found
