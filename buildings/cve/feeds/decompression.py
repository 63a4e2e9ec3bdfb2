"""Decompresses a feed: gzip in bounded blocks, so that a small body cannot become a huge one in memory."""

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain

from buildings.cve.feeds.errors import FeedRefused

GZIP = b"\x1f\x8b"
GZIP_WINDOW = 16 + zlib.MAX_WBITS
BLOCK = 1 << 18
MAX_UNPACKED_BYTES = 96 << 20
"""Ten times the largest feed, unpacked."""

GZIP_LAYERS = 2
"""A gzip file may be sent with Content-Encoding: gzip around it."""


def unpacked(body: bytes, *, feed: str, max_bytes: int) -> Iterator[bytes]:
    """The bytes within, in blocks of at most 256 KB; a body that is not gzip comes as it is.

    Raises FeedRefused for a gzip stream that is damaged, ends early, or holds more than `max_bytes` bytes.
    """
    blocks: Iterator[bytes] = (body[start : start + BLOCK] for start in range(0, len(body), BLOCK))
    for _ in range(GZIP_LAYERS):
        first = next(blocks, b"")
        blocks = chain((first,), blocks)
        if not first.startswith(GZIP):
            break
        blocks = _gunzipped(blocks, feed=feed, max_bytes=max_bytes)
    return blocks


def whole(body: bytes, *, feed: str, max_bytes: int) -> bytes | bytearray:
    """The bytes within, in one piece."""
    if not body.startswith(GZIP):
        return body
    content = bytearray()
    for block in unpacked(body, feed=feed, max_bytes=max_bytes):
        content += block
    return content


def _gunzipped(blocks: Iterable[bytes], *, feed: str, max_bytes: int) -> Iterator[bytes]:
    stream, total = zlib.decompressobj(GZIP_WINDOW), 0
    for block in blocks:
        rest, piece = block, b""
        # A full piece may leave more in the stream though all of the block went in.
        while rest or (len(piece) == BLOCK and not stream.eof):
            if stream.eof:
                stream = zlib.decompressobj(GZIP_WINDOW)
            try:
                piece = stream.decompress(rest, BLOCK)
            except zlib.error as error:
                raise FeedRefused(feed, f"the gzip stream is damaged after {total:,} unpacked bytes: {error}") from None
            rest = stream.unused_data if stream.eof else stream.unconsumed_tail
            total += len(piece)
            if total > max_bytes:
                raise FeedRefused(feed, f"it unpacks to more than {max_bytes:,} bytes")
            yield piece
    if not stream.eof:
        raise FeedRefused(feed, f"the gzip stream ends early, after {total:,} unpacked bytes")
