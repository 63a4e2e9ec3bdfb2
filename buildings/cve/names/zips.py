"""Reads a zip file as it arrives, one file of it in memory at a time: an ecosystem of OSV has up to some hundred thousand files.

Python's zipfile needs the whole file first, and then 150 MB for the directory of the largest.
"""

import struct
import zlib
from collections.abc import Iterator

from buildings.cve.feeds.errors import FeedRefused

LOCAL, CENTRAL, END, DESCRIPTOR = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x07\x08"
HEAD = struct.Struct("<4sHHHHHIIIHH")
HAS_DESCRIPTOR = 0x08  # The checksum stands after the file's content.
DEFLATED = 8
LONGEST_DESCRIPTOR = 24
TAIL = 256
LARGEST_FILE = 16 << 20
MOST_FILES = 1_000_000
MOST_UNPACKED = 16 << 30


class Unzip:
    """`take` yields the name and content of each file that is complete; `finish` raises FeedRefused if the zip file is not."""

    def __init__(self, feed: str) -> None:
        self._feed = feed
        self._rest = bytearray()
        self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        self._head: tuple[str, int | None] | None = None  # of the open file: its name, and its checksum unless that comes later
        self._content = bytearray()
        self._files = self._unpacked = 0
        self._in_directory = False

    def take(self, chunk: bytes) -> Iterator[tuple[str, bytearray]]:
        self._rest += chunk
        while not self._in_directory and (self._head or self._open()):
            if (file := self._inflated()) is None:
                return
            yield file
        if self._in_directory:
            del self._rest[:-TAIL]

    def finish(self) -> None:
        if not self._in_directory or END not in self._rest:
            raise FeedRefused(self._feed, f"the zip file ends early, after {self._files:,} files")

    def _open(self) -> bool:
        """Read the head of the next file; False if it has not arrived, or if the directory begins, which is the end of the files."""
        rest = self._rest
        self._in_directory = rest.startswith((CENTRAL, END))
        if self._in_directory or len(rest) < HEAD.size:
            return False
        signature, _, flags, method, _, _, checksum, _, _, name_length, more_length = HEAD.unpack_from(rest)
        if signature != LOCAL or method != DEFLATED:
            raise FeedRefused(self._feed, f"not a zip file of deflated files: after {self._files:,} files follows {bytes(rest[:10])!r}")
        end = HEAD.size + name_length + more_length
        if len(rest) < end:
            return False
        name = rest[HEAD.size : HEAD.size + name_length].decode("utf-8", "replace")
        self._head = name, None if flags & HAS_DESCRIPTOR else checksum
        self._files += 1
        del rest[:end]
        return True

    def _inflated(self) -> tuple[str, bytearray] | None:
        assert self._head, "a file is open"
        name, checksum = self._head
        if not self._stream.eof:
            self._inflate(name)
        if not self._stream.eof or (checksum is None and len(self._rest) < LONGEST_DESCRIPTOR + 2):
            return None
        if checksum is None:
            checksum = self._described(name)
        if zlib.crc32(self._content) != checksum:
            raise FeedRefused(self._feed, f"{name} in the zip file is damaged: its checksum differs")
        content, self._content = self._content, bytearray()
        self._head, self._stream = None, zlib.decompressobj(-zlib.MAX_WBITS)
        return name, content

    def _inflate(self, name: str) -> None:
        try:
            self._content += self._stream.decompress(self._rest, LARGEST_FILE + 1 - len(self._content))
        except zlib.error as error:
            raise FeedRefused(self._feed, f"{name} in the zip file is damaged: {error}") from None
        self._rest[:] = self._stream.unused_data
        if len(self._content) > LARGEST_FILE:
            raise FeedRefused(self._feed, f"{name} in the zip file unpacks to more than {LARGEST_FILE:,} bytes")
        if self._stream.eof:
            self._unpacked += len(self._content)
            if self._files > MOST_FILES or self._unpacked > MOST_UNPACKED:
                raise FeedRefused(self._feed, f"it unpacks to more than {MOST_FILES:,} files or {MOST_UNPACKED:,} bytes")

    def _described(self, name: str) -> int:
        """The checksum after a file's content, with the sizes in four or in eight bytes each."""
        signature, checksum = struct.unpack_from("<4sI", self._rest)
        if signature != DESCRIPTOR:
            raise FeedRefused(self._feed, f"{name} in the zip file has no checksum")
        del self._rest[: 16 if self._rest[16:18] == b"PK" else LONGEST_DESCRIPTOR]
        return int(checksum)
