"""The HTTP client for callers' URLs: one connection per request, guarded, and little patience."""

import ssl
from collections.abc import AsyncIterable, Collection
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpcore
import httpx

from campus.outbound.connect import GuardedNetwork
from campus.outbound.resolver import AT_ONCE, Resolve, Resolver, system_resolver
from campus.outbound.url_rules import PORTS, UrlRules

EXCHANGE_SECONDS = 10.0
READ_BYTES = 4096
LEFT_OUT = frozenset({b"content-encoding", b"content-length", b"location", b"set-cookie", b"transfer-encoding"})
"""Headers that would have the client follow, remember, or unpack what a stranger sent."""


class GuardedClient(httpx.AsyncClient):
    """An httpx client for URLs that callers name; the guard stands below it, whichever way it is used.

    A URL that breaks a rule raises TargetRefused, before any connection is made. Redirects are answers like others, without
    their address. Of an answer's body the first 4 KB are there, as they were sent. Anything that fails, or takes 10 s in all,
    is an httpx.TransportError and may go well later.
    """

    def __init__(self, rules: UrlRules, dial: GuardedNetwork, *, trust: ssl.SSLContext, seconds: float = EXCHANGE_SECONDS) -> None:
        """`trust` says whose certificates are believed; `seconds` is for an exchange as a whole, its lookup included."""
        self._url_rules = rules
        self._dial = dial
        self._trusted = trust
        self._seconds = seconds
        super().__init__(
            transport=GuardedTransport(rules, dial, trust=trust, seconds=seconds),
            trust_env=False,
            timeout=seconds,
            headers={"user-agent": "campus", "accept-encoding": "identity"},
        )

    def apart(self, *, lookups: int = AT_ONCE) -> "GuardedClient":
        """The same client, which looks up so many names at once in threads of its own: those of others never keep it waiting."""
        return GuardedClient(self._url_rules, self._dial.apart(lookups=lookups), trust=self._trusted, seconds=self._seconds)

    def within(self, seconds: float) -> "GuardedClient":
        """The same client, its lookups shared, with so many seconds for an exchange."""
        return GuardedClient(self._url_rules, self._dial, trust=self._trusted, seconds=seconds)

    def check_url(self, url: str) -> None:
        """Raise TargetRefused when the URL's text breaks a rule; nothing is looked up."""
        self._url_rules.check(url)

    async def check_target(self, url: str) -> None:
        """The same, and look its host up: TargetRefused when that leads to a private place; httpx.ConnectError when nowhere."""
        target = self._url_rules.check(url)
        try:
            await self._dial.public_addresses(target.host, target.port)
        except OSError as error:
            raise httpx.ConnectError(f"{target.host} cannot be looked up: {error}") from None

    def build_request(self, method: str, url: httpx.URL | str, **options: Any) -> httpx.Request:
        """As httpx does, from a URL that keeps the rules as it was written: httpx rewrites what it reads."""
        self.check_url(str(url))
        return super().build_request(method, url, **options)


class GuardedTransport(httpx.AsyncBaseTransport):
    """A connection of its own for each request: none outlives the check that allowed it."""

    def __init__(self, rules: UrlRules, dial: GuardedNetwork, *, trust: ssl.SSLContext, seconds: float) -> None:
        self._rules = rules
        self._dial = dial
        self._trust = trust
        self._seconds = seconds

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Check, send, and read the beginning of the answer."""
        self._rules.check(str(request.url))
        try:
            with anyio.fail_after(self._seconds):
                return await self._exchange(request)
        except TimeoutError:
            raise httpx.ReadTimeout(f"no complete answer within {self._seconds:g} s", request=request) from None
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
            same: type[httpx.TransportError] = getattr(httpx, type(error).__name__)  # httpx names its own after httpcore's
            raise same(str(error), request=request) from error

    async def _exchange(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port or PORTS[request.url.scheme],
            target=request.url.raw_path,
        )
        connection = httpcore.AsyncHTTPConnection(url.origin, self._trust, network_backend=self._dial)
        # who never completes the handshake is given up in half the time; dial closes the connection however that ends
        within = {**request.extensions.get("timeout", {}), "connect": self._seconds / 2}
        extensions = {**request.extensions, "timeout": within}
        sent = httpcore.Request(request.method, url, headers=request.headers.raw, content=request.stream, extensions=extensions)
        async with connection, aclosing(await connection.handle_async_request(sent)) as response:
            body = await _beginning(response.aiter_stream())
        headers = [(name, value) for name, value in response.headers if name.lower() not in LEFT_OUT]
        return httpx.Response(response.status, headers=headers, content=body, request=request)


async def _beginning(stream: AsyncIterable[bytes]) -> bytes:
    body = b""
    async for chunk in stream:
        body += chunk
        if len(body) >= READ_BYTES:
            break
    return body[:READ_BYTES]


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

    `resolve` looks names up, `network` makes connections to addresses, `trust` says whose certificates are believed
    (by default certifi's, or those of SSL_CERT_FILE): for tests to stand in.
    """
    rules = UrlRules(urlsplit(own_url).hostname or "", allowed_hosts)
    dial = GuardedNetwork(Resolver(resolve), allowed_hosts=allowed_hosts, network=network or httpcore.AnyIOBackend())
    return GuardedClient(rules, dial, trust=trust or httpx.create_ssl_context(), seconds=seconds)
