"""The HTTP clients: the guarded one for callers' URLs, which reaches no private address; and those for the operator's, also of files."""

import ssl
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from email.utils import formatdate
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import anyio
import httpcore
import httpx

from campus.outbound.public_hosts import AT_ONCE, PORTS, GuardedNetwork, Resolve, Resolver, Target, UrlRules, system_resolver

EXCHANGE_SECONDS = 10.0
MOST_KEPT = 128  # Connections that wait for their next request.
KEPT_SECONDS = 2.0
"""How long a kept connection waits for its next request. Common servers close theirs after 5 s: one that is used then would fail."""
READ_BYTES = 4096
LEFT_OUT = frozenset({b"content-encoding", b"content-length", b"location", b"set-cookie", b"transfer-encoding"})
"""Headers that would make the client follow, remember, or unpack what a stranger sent."""
MOST_BYTES = 8 * 1024 * 1024  # Of an answer of a facilitator or a chain's node; the logs of 10,000 payments are as long.
FEED_CONNECT_SECONDS, FEED_READ_SECONDS = 10.0, 30.0
SENT = {"user-agent": "campus", "accept-encoding": "identity"}  # Headers of every request of the guarded client.
Headers = Sequence[tuple[bytes, bytes]]


class KeptConnections:
    """Connections whose answer was read whole, each for the next request to its origin. Not for several event loops."""

    def __init__(self) -> None:
        self._idle: dict[tuple[bytes, bytes, int], list[httpcore.AsyncHTTPConnection]] = {}
        self._count = 0

    async def take(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection | None:
        kept = self._idle.get((origin.scheme, origin.host, origin.port), [])
        while kept:
            connection = kept.pop()
            self._count -= 1
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return None

    async def put(self, origin: httpcore.Origin, connection: httpcore.AsyncHTTPConnection) -> None:
        if connection.is_idle() and self._count < MOST_KEPT:
            self._idle.setdefault((origin.scheme, origin.host, origin.port), []).append(connection)
            self._count += 1
        else:
            await connection.aclose()

    async def close(self) -> None:
        idle, self._idle, self._count = self._idle, {}, 0
        for connection in chain.from_iterable(idle.values()):
            await connection.aclose()


class GuardedClient(httpx.AsyncClient):
    """An httpx client for URLs that callers name; its transport checks each request, whichever method made it.

    A URL that breaks a rule raises TargetRefused before any connection is made. Redirects are not followed: they are returned
    without their Location. Of a response body the first 4 KB are read, and not decompressed. What fails, or takes more than 10 s
    in all, raises httpx.TransportError and may succeed later.
    """

    def __init__(self, transport: "GuardedTransport") -> None:
        self._guarded = transport
        super().__init__(transport=transport, trust_env=False, timeout=transport.seconds, headers=SENT)

    def apart(self, *, lookups: int = AT_ONCE, kept: KeptConnections | None = None) -> "GuardedClient":
        """The same client with threads of its own for name lookups, `lookups` of them: it never waits for other callers' lookups."""
        return GuardedClient(replace(self._guarded, network=self._guarded.network.apart(lookups=lookups), kept=kept))

    def within(self, seconds: float) -> "GuardedClient":
        """The same client with another limit in seconds; it shares the threads for lookups and the kept connections."""
        return GuardedClient(replace(self._guarded, seconds=seconds))

    def check_url(self, url: str) -> None:
        """Raise TargetRefused if the URL's text breaks a rule; nothing is looked up."""
        self._guarded.rules.check(url)

    async def check_target(self, url: str) -> None:
        """Check the URL and look its host up: raises TargetRefused for a private address, httpx.ConnectError if there is none."""
        target = self._guarded.rules.check(url)
        try:
            await self._guarded.network.public_addresses(target.host, target.port)
        except OSError as error:
            raise httpx.ConnectError(f"{target.host} cannot be looked up: {error}") from None

    async def post_bytes(self, url: str, body: bytes, headers: Mapping[str, str], *, method: str = "POST") -> httpx.Response:
        """The same as `post`, or another `method`, at two thirds of its CPU: httpx's work for cookies, redirects, logins is left out."""
        target = self._guarded.rules.check(url)
        named = {"host": target.authority, **SENT, **headers, "content-length": str(len(body))}
        raw = [(name.encode("ascii"), value.encode("ascii")) for name, value in named.items()]
        return await self._guarded.send(method, target, raw, body, {})  # the limit for the whole is enough

    def build_request(self, method: str, url: httpx.URL | str, **options: Any) -> httpx.Request:
        """Build the request as httpx does, after a check of the URL as it was written, because httpx rewrites it."""
        self.check_url(str(url))
        return super().build_request(method, url, **options)


@dataclass(frozen=True, kw_only=True)
class GuardedTransport(httpx.AsyncBaseTransport):
    """Sends each request over a connection of its own, or over a kept one, whose address was checked for the same host.

    `trust` holds the certificate authorities; `seconds` is the limit for a request with its answer, name lookup included.
    """

    rules: UrlRules
    network: GuardedNetwork
    trust: ssl.SSLContext
    seconds: float = EXCHANGE_SECONDS
    kept: KeptConnections | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        target = self.rules.check(str(request.url))
        return await self.send(request.method, target, request.headers.raw, request.stream, request.extensions)

    async def send(
        self, method: str, target: Target, headers: Headers, content: bytes | AsyncIterable[bytes], extensions: Mapping[str, Any]
    ) -> httpx.Response:
        # a handshake may take half of the time; GuardedNetwork closes the connection however it ends
        within = {**extensions.get("timeout", {}), "connect": self.seconds / 2}
        url = httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
        sent = httpcore.Request(method, url, headers=headers, content=content, extensions={**extensions, "timeout": within})
        try:
            with anyio.fail_after(self.seconds):
                return await self._exchange(sent)
        except TimeoutError:
            raise httpx.ReadTimeout(f"no complete answer within {self.seconds:g} s") from None
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
            same: type[httpx.TransportError] = getattr(httpx, type(error).__name__)  # httpx names its own after httpcore's
            raise same(str(error)) from error

    async def _exchange(self, sent: httpcore.Request) -> httpx.Response:
        async with self._connection(sent.url.origin) as connection, aclosing(await connection.handle_async_request(sent)) as response:
            body = await _beginning(response.aiter_stream())
        headers = [(name, value) for name, value in response.headers if name.lower() not in LEFT_OUT]
        return httpx.Response(response.status, headers=headers, content=body)

    @asynccontextmanager
    async def _connection(self, origin: httpcore.Origin) -> AsyncIterator[httpcore.AsyncHTTPConnection]:
        kept = self.kept and await self.kept.take(origin)
        connection = kept or httpcore.AsyncHTTPConnection(origin, self.trust, network_backend=self.network, keepalive_expiry=KEPT_SECONDS)
        try:
            yield connection
        finally:
            if self.kept is None:
                await connection.aclose()
            else:
                await self.kept.put(origin, connection)


async def _beginning(stream: AsyncIterable[bytes]) -> bytes:
    body = b""
    async for chunk in stream:
        body += chunk
        if len(body) >= READ_BYTES:
            break
    return body[:READ_BYTES]


@cache
def certificate_authorities() -> ssl.SSLContext:
    """The certificate authorities of certifi or SSL_CERT_FILE, read once in a process: it takes 25 ms."""
    return httpx.create_ssl_context()


def guarded_client(
    own_url: str,
    *,
    allowed_hosts: Collection[str] = (),
    resolve: Resolve = system_resolver,
    network: httpcore.AsyncNetworkBackend | None = None,
    trust: ssl.SSLContext | None = None,
    seconds: float = EXCHANGE_SECONDS,
) -> GuardedClient:
    """The client of the service at `own_url`.

    `resolve` looks names up, `network` connects to addresses, and `trust` holds the certificate authorities (by default those of
    certifi or SSL_CERT_FILE); tests replace them.
    """
    rules = UrlRules(urlsplit(own_url).hostname or "", allowed_hosts)
    guarded = GuardedNetwork(Resolver(resolve), allowed_hosts=allowed_hosts, network=network or httpcore.AnyIOBackend())
    return GuardedClient(GuardedTransport(rules=rules, network=guarded, trust=trust or certificate_authorities(), seconds=seconds))


class BoundedClient(httpx.AsyncClient):
    """A client for a service that the operator trusts, which may yet break or lie: of an answer at most 8 MiB are read and unpacked.

    An answer that is longer, or packed in another way than gzip, raises httpx.DecodingError.
    """

    def __init__(self, *, timeout: httpx.Timeout, trust: ssl.SSLContext) -> None:
        """`trust` holds the certificate authorities. `timeout` limits each step of a request; its caller limits the time for the whole."""
        super().__init__(timeout=timeout, verify=trust, headers={"accept-encoding": "gzip, identity"})

    async def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        response = await super().send(request, stream=True, **options)
        body = bytearray()
        try:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise _too_long(request)
        finally:
            await response.aclose()
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in (b"content-encoding", b"content-length")]
        content = _unpacked(bytes(body), response.headers.get("content-encoding", "identity").lower(), request)
        return httpx.Response(response.status_code, headers=headers, content=content, request=request)


def _unpacked(body: bytes, encoding: str, request: httpx.Request) -> bytes:
    if encoding == "identity":
        return body
    if encoding != "gzip":
        raise httpx.DecodingError("the answer is packed in another way than gzip", request=request)
    stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        content = stream.decompress(body, MOST_BYTES)
    except zlib.error:
        raise httpx.DecodingError("the answer is not gzip, as it says it is", request=request) from None
    if stream.unconsumed_tail:
        raise _too_long(request)
    return content


def _too_long(request: httpx.Request) -> httpx.DecodingError:
    return httpx.DecodingError(f"the answer has more than {MOST_BYTES:,} bytes", request=request)


class FileTransport(httpx.AsyncBaseTransport):
    """Responds to file:// URLs as a web server would: 200 with the bytes, 304 if unchanged, 404 if missing."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = anyio.Path(Path(url2pathname(request.url.path)))
        try:
            stat = await path.stat()
            tags = {"etag": f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"', "last-modified": formatdate(stat.st_mtime, usegmt=True)}
            if request.headers.get("if-none-match") == tags["etag"]:
                return httpx.Response(304, headers=tags)
            return httpx.Response(200, headers=tags, stream=FileStream(path))
        except OSError as error:
            return httpx.Response(404 if isinstance(error, FileNotFoundError) else 403, text=f"{request.url}: {error.strerror}")


class FileStream(httpx.AsyncByteStream):
    def __init__(self, path: anyio.Path) -> None:
        self._path = path

    async def __aiter__(self):  # type: ignore[no-untyped-def]  # httpx declares no type that an async generator fits
        async with await self._path.open("rb") as file:
            while chunk := await file.read(1 << 18):
                yield chunk


async def _refuse_redirect_to_file(response: httpx.Response) -> None:
    """A server on the web must not choose a file of this machine: only the operator does."""
    scheme, colon, _ = response.headers.get("location", "").strip().partition(":")
    if response.has_redirect_location and colon and scheme.isalnum() and scheme.lower() not in PORTS:
        raise httpx.UnsupportedProtocol(f"it leads to an address of the kind {scheme.lower()}:", request=response.request)


def feeds_client(trust: ssl.SSLContext) -> httpx.AsyncClient:
    """A client that follows redirects to http and https, has timeouts, and also reads file:// URLs."""
    return httpx.AsyncClient(
        event_hooks={"response": [_refuse_redirect_to_file]},
        verify=trust,
        base_url="file://localhost",  # httpx reads file:///path, which has no host, as relative to this
        mounts={"file://": FileTransport()},
        follow_redirects=True,
        timeout=httpx.Timeout(FEED_READ_SECONDS, connect=FEED_CONNECT_SECONDS),
        headers={"user-agent": "campus"},
    )
