"""Downloads a feed, streamed, limited in size and time, only if it changed, with retries; and decompresses it in bounded blocks."""

import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from itertools import chain
from typing import Protocol
from urllib.parse import urlsplit

import anyio
import httpx

from buildings.cve.feeds.errors import FeedRefused, FeedUnavailable
from campus.observability import origin_of

GZIP = b"\x1f\x8b"
GZIP_WINDOW = 16 + zlib.MAX_WBITS
BLOCK = 1 << 18
MAX_UNPACKED_BYTES = 96 << 20  # Ten times the largest feed, unpacked.

GZIP_LAYERS = 2  # A gzip file may be sent with Content-Encoding: gzip around it.

GZIP_MEMBERS = 64  # The most streams in a gzip file. Published ones have one; each costs a copy of what follows it.

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def unpacked(body: bytes, *, feed: str, max_bytes: int) -> Iterator[bytes]:
    """The bytes within, in blocks of at most 256 KB, without a byte order mark; a body that is not gzip comes as it is.

    Raises FeedRefused for a gzip stream that is damaged, ends early, or holds more than `max_bytes` bytes.
    """
    blocks: Iterator[bytes] = (body[start : start + BLOCK] for start in range(0, len(body), BLOCK))
    for _ in range(GZIP_LAYERS):
        first = next(blocks, b"")
        blocks = chain((first,), blocks)
        if not first.startswith(GZIP):
            break
        blocks = _gunzipped(blocks, feed=feed, max_bytes=max_bytes)
    return chain((next(blocks, b"").removeprefix(BYTE_ORDER_MARK),), blocks)


def whole(body: bytes, *, feed: str, max_bytes: int) -> bytes | bytearray:
    if not body.startswith(GZIP):
        return body.removeprefix(BYTE_ORDER_MARK)
    content = bytearray()
    for block in unpacked(body, feed=feed, max_bytes=max_bytes):
        content += block
    return content


def _gunzipped(blocks: Iterable[bytes], *, feed: str, max_bytes: int) -> Iterator[bytes]:
    stream = zlib.decompressobj(GZIP_WINDOW)
    total = 0
    members = 1
    for block in blocks:
        rest = block
        piece = b""
        # A full piece may leave data in the stream although the whole block was read.
        while rest or (len(piece) == BLOCK and not stream.eof):
            if stream.eof:
                stream = zlib.decompressobj(GZIP_WINDOW)
                members += 1
                if members > GZIP_MEMBERS:
                    raise FeedRefused(feed, f"the gzip file has more than {GZIP_MEMBERS} streams")
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


RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})  # Statuses that may pass, so that the request is sent again.

CONDITIONS = frozenset({"if-none-match", "if-modified-since"})


def shown_address(url: str) -> str:
    """Scheme and host of an address and a digest of it without its user: it may hold a password, and is told from others by this."""
    user, at, host = urlsplit(url).netloc.rpartition("@")
    digest = sha256(url.replace(f"{user}{at}{host}", host, 1).encode()).hexdigest()
    return f"{origin_of(url)} {digest[:16]}"


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How long one address may take: `seconds` in all, retries included; the wait between attempts doubles."""

    seconds: float = 120.0
    attempts: int = 3
    first_wait: float = 1.0


@dataclass(frozen=True, kw_only=True)
class SizeLimits:
    sent: int = 32 << 20
    unpacked: int = MAX_UNPACKED_BYTES


@dataclass(frozen=True, kw_only=True)
class FetchLimits:
    """Timeouts and size limits of all feeds, and the window of NVD's rate limit in seconds.

    `archive_seconds` and `archive_bytes` are for a zip file of OSV: the largest of the default ones has some 200 MB.
    """

    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    size_limits: SizeLimits = field(default_factory=SizeLimits)
    nvd_window: float = 30.0
    archive_seconds: float = 1_800.0
    archive_bytes: int = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Copy:
    """The address, ETag and Last-Modified of a copy, so that the server sends only a newer one.

    `address` is as `shown_address` returns it: copies are stored.
    """

    address: str
    etag: str | None = None
    last_modified: str | None = None

    def conditions(self, url: str) -> dict[str, str]:
        """The headers that ask `url` for a newer one; none when this copy came from another address."""
        if shown_address(url) != self.address:
            return {}
        said = {"if-none-match": self.etag, "if-modified-since": self.last_modified}
        return {name: value for name, value in said.items() if value}


@dataclass(frozen=True, kw_only=True)
class Download:
    body: bytes
    copy: Copy


class Taker(Protocol):
    """Takes what is downloaded as it arrives."""

    def restart(self) -> None:
        """Forget what was taken: the download is tried again."""

    def take(self, chunk: bytes) -> bool:
        """Take a part; False ends the download, because the rest is not needed."""


@dataclass
class Body:
    """A Taker that keeps all."""

    content: bytearray = field(default_factory=bytearray)

    def restart(self) -> None:
        self.content.clear()

    def take(self, chunk: bytes) -> bool:
        self.content += chunk
        return True


@dataclass(frozen=True, kw_only=True)
class Fetcher:
    client: httpx.AsyncClient
    feed: str
    retry_policy: RetryPolicy
    size_limits: SizeLimits = SizeLimits()

    async def fetch(self, url: str, *, held: Copy | None = None, headers: Mapping[str, str] | None = None) -> Download | None:
        """The feed at `url`; None when the `held` copy is still the newest.

        Raises FeedUnavailable when it cannot be read, FeedRefused when it is too large. A request with `headers`
        follows no redirect, since they may carry a key.
        """
        body = Body()
        copy = await self._fetch(url, body, held, {"accept-encoding": "gzip", **(headers or {})}, follow_redirects=not headers)
        return Download(body=bytes(body.content), copy=copy) if copy else None

    async def stream(self, url: str, taker: Taker, *, held: Copy | None = None) -> Copy | None:
        """Give the feed at `url` to `taker` as it arrives, not compressed for the way; None, and nothing, when `held` is the newest."""
        return await self._fetch(url, taker, held, {"accept-encoding": "identity"}, follow_redirects=True)

    async def _fetch(self, url: str, taker: Taker, held: Copy | None, headers: Mapping[str, str], *, follow_redirects: bool) -> Copy | None:
        asked = {**headers, **(held.conditions(url) if held else {})}
        responses: list[httpx.Response] = []
        try:
            with anyio.fail_after(self.retry_policy.seconds):
                return await self._with_tries(lambda: self._stream(url, asked, taker, responses, follow_redirects=follow_redirects))
        except TimeoutError:
            read = responses[-1].num_bytes_downloaded if responses else 0
            raise FeedUnavailable(
                self.feed, f"{origin_of(url)} had not finished after {self.retry_policy.seconds:g} seconds and {read:,} bytes"
            ) from None
        except httpx.HTTPStatusError as error:
            raise FeedUnavailable(self.feed, answer_of(url, error.response.status_code)) from None
        except httpx.InvalidURL:  # its text quotes the URL, which may hold a password
            raise FeedUnavailable(self.feed, "its address cannot be read; percent-encode the user and password in it") from None
        except (httpx.HTTPError, OSError) as error:
            raise FeedUnavailable(
                self.feed, f"{origin_of(url)} did not send a complete answer: {type(error).__name__} {error}".rstrip()
            ) from None

    async def _with_tries(self, stream: Callable[[], Awaitable[Copy | None]]) -> Copy | None:
        import stamina  # 8 ms, spared until a feed is asked

        # The call has no arguments, for stamina logs those: a header may be a key.
        first = self.retry_policy.first_wait
        tries = stamina.AsyncRetryingCaller(attempts=self.retry_policy.attempts, timeout=None, wait_initial=first, wait_jitter=first / 2)
        return await tries(_is_retried, stream)

    async def _stream(
        self, url: str, headers: Mapping[str, str], taker: Taker, responses: list[httpx.Response], *, follow_redirects: bool
    ) -> Copy | None:
        taker.restart()
        async with self.client.stream("GET", url, headers=headers, follow_redirects=follow_redirects) as response:
            if response.status_code == HTTPStatus.NOT_MODIFIED and headers.keys() & CONDITIONS:
                return None
            self._check(response, url)
            responses.append(response)
            async for chunk in response.aiter_raw():
                wants_more = taker.take(chunk)
                if response.num_bytes_downloaded > self.size_limits.sent:
                    raise FeedRefused(self.feed, f"{origin_of(url)} sends more than {self.size_limits.sent:,} bytes")
                if not wants_more:
                    break
        return Copy(address=shown_address(url), etag=response.headers.get("etag"), last_modified=response.headers.get("last-modified"))

    def _check(self, response: httpx.Response, url: str) -> None:
        if not response.is_success:
            raise httpx.HTTPStatusError(str(response.status_code), request=response.request, response=response)
        if response.url.scheme == "file" and not url.startswith("file:"):
            raise FeedRefused(self.feed, f"{origin_of(url)} leads to a file of this machine")


def answer_of(url: str, status: int) -> str:
    if url.startswith("file:"):
        return f"{origin_of(url)} {'does not exist' if status == HTTPStatus.NOT_FOUND else 'cannot be read by this user'}"
    return f"{origin_of(url)} answered {status}"


def _is_retried(error: Exception) -> bool:
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in RETRIED_STATUSES
    return isinstance(error, httpx.TransportError)
