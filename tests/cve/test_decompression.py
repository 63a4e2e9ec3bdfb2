"""Decompression: gzip in bounded blocks, damaged or not."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildings.cve.feeds.decompression import BLOCK, unpacked, whole
from buildings.cve.feeds.errors import FeedRefused

MOST = 4 << 20


def opened(body: bytes, max_bytes: int = MOST) -> bytes:
    return b"".join(unpacked(body, feed="EPSS", max_bytes=max_bytes))


@given(st.binary(max_size=500), st.integers(1, 3000))
def test_what_was_packed_comes_out_again(piece: bytes, times: int) -> None:
    content = b"+" + piece * times
    assert opened(content) == content
    assert opened(gzip.compress(content, 1)) == content
    assert opened(gzip.compress(gzip.compress(content, 1))) == content
    assert whole(gzip.compress(content, 1), feed="EPSS", max_bytes=MOST) == content


def test_a_file_of_several_gzip_members_is_read_to_its_end() -> None:
    assert opened(gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


def test_no_block_is_large_however_well_the_body_was_packed() -> None:
    packed = gzip.compress(bytes(MOST))
    assert len(packed) < 5000
    assert max(len(block) for block in unpacked(packed, feed="EPSS", max_bytes=MOST)) <= BLOCK


def test_a_gzip_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = gzip.compress(bytes(MOST + 1))
    with pytest.raises(FeedRefused, match="unpacks to more than 4,194,304 bytes"):
        opened(bomb)


def test_a_bomb_within_a_gzip_file_is_refused_too() -> None:
    with pytest.raises(FeedRefused, match="unpacks to more than"):
        opened(gzip.compress(gzip.compress(bytes(40 * MOST))), max_bytes=MOST)


def test_a_gzip_stream_that_ends_early_is_refused() -> None:
    packed = gzip.compress(b"CVE-1999-0001,0.5,1\n" * 1000)
    with pytest.raises(FeedRefused, match="ends early"):
        opened(packed[:-20])


def test_a_damaged_gzip_stream_is_refused() -> None:
    packed = bytearray(gzip.compress(zlib.compress(b"x" * 9999) * 50))
    packed[40] ^= 0xFF
    with pytest.raises(FeedRefused, match="damaged"):
        opened(bytes(packed))
