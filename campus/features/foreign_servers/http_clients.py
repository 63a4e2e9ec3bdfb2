"""HTTP clients of servers that were not written for campus: what they may send is bounded before it is parsed or kept.

That of an API is guarded too, without cookies, and with no header of campus's callers.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import anyio
import httpcore
import httpx2
from httpx2 import AsyncByteStream, AsyncClient, Response, SSEError, StreamError, Timeout
from pydantic_core import from_json

from campus.errors import TargetRefused
from campus.features.foreign_servers.bounded_lines import TOO_LONG
from campus.observability import origin_of
from campus.outbound.public_hosts import TRIED, GuardedNetwork, Resolver
from twins import upstream_failed, upstream_too_long

TIMEOUT = Timeout(30.0, read=300.0)
"""mcp's own, where its caller names none."""
PLAIN = {"Accept-Encoding": "identity"}
MOST_REDIRECTS = 5
AS_BUILT = "campus.headers"
"""In a request: the headers with which it was built."""
log = logging.getLogger(__name__)


class AnswerTooLong(SSEError, StreamError):
    """Both kinds, since mcp answers the waiting request for the one in an event stream, and for the other in a JSON body."""


class _Counted(AsyncByteStream):
    def __init__(self, stream: AsyncByteStream, count: Callable[[int], None]) -> None:
        self._stream = stream
        self._count = count

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._count(len(chunk))
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def bounded_clients(limit: int) -> Callable[..., AsyncClient]:
    """Makes HTTP clients as mcp does. All answers to one client, which is one call or one list, have at most `limit` bytes."""

    def client(headers: dict[str, str] | None = None, timeout: Timeout | None = None, auth: Any = None, **_: Any) -> AsyncClient:
        plain = {**(headers or {}), **PLAIN}
        return AsyncClient(headers=plain, timeout=timeout or TIMEOUT, auth=auth, event_hooks={"response": [bound(limit)]})

    return client


def bound(limit: int) -> Callable[[Response], Awaitable[None]]:
    """A hook for responses, which have at most `limit` bytes together."""
    left = limit

    def count(size: int) -> None:
        nonlocal left
        left -= size
        if left < 0:
            raise AnswerTooLong(TOO_LONG.format(limit))

    async def bounded(response: Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":  # it has no bound before it is unpacked
            raise AnswerTooLong("the answer is compressed, which the server was asked not to do")
        assert isinstance(response.stream, AsyncByteStream)
        response.stream = _Counted(response.stream, count)

    return bounded


def guarded_network(allowed_hosts: frozenset[str]) -> GuardedNetwork:
    """The network in which a document's author names the hosts: only those that the operator named may have a private address."""
    return GuardedNetwork(Resolver(), allowed_hosts=allowed_hosts, network=httpcore.AnyIOBackend())


class ApiTransport(httpx2.AsyncHTTPTransport):
    """Connects to the addresses that were checked: no second lookup can lead elsewhere."""

    def __init__(self, network: GuardedNetwork) -> None:
        super().__init__()
        self._network = network

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The response of the first address that can be connected to; httpx2.ConnectError if there is none, or a private one."""
        url = request.url
        try:
            addresses = await self._network.public_addresses(url.host, url.port or (443 if url.scheme == "https" else 80))
        except (TargetRefused, OSError) as error:  # the latter also for a lookup that takes too long
            raise httpx2.ConnectError(f"{url.host} has no address to which campus connects: {error}", request=request) from error
        failed = httpx2.ConnectError(f"{url.host} cannot be reached", request=request)
        extensions = {**request.extensions, "sni_hostname": url.host}
        for address in addresses[:TRIED]:
            at = httpx2.Request(
                request.method, url.copy_with(host=address), headers=request.headers, stream=request.stream, extensions=extensions
            )
            try:
                return await super().handle_async_request(at)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failed = httpx2.ConnectError(str(error), request=request)
        raise failed


class ApiClient(httpx2.AsyncClient):
    """Answers have at most `limit` bytes and take at most `seconds`, redirects included, which are followed on the same host alone.

    An answer that is no answer is a Problem, or an error of httpx2. One without a body is null.
    """

    def __init__(self, base_url: str = "", *, network: GuardedNetwork, limit: int, seconds: float, headers: dict[str, str]) -> None:
        self._limit = limit
        self._seconds = seconds
        self._connections = ApiTransport(network)
        super().__init__(
            base_url=base_url,
            headers={**headers, **PLAIN},
            timeout=seconds,
            transport=self._connections,
            follow_redirects=True,
            max_redirects=MOST_REDIRECTS,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # one caller's session is no other's
            event_hooks={"response": [self._stay_on_the_host, self._bound]},
        )

    def build_request(self, *arguments: Any, **options: Any) -> httpx2.Request:
        """The request, which remembers its headers: FastMCP adds those of the caller, such as a key or a payment for campus."""
        request = super().build_request(*arguments, **options)
        request.extensions = {**request.extensions, AS_BUILT: request.headers.copy()}
        return request

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        request.headers = request.extensions.get(AS_BUILT, request.headers)
        try:
            with anyio.fail_after(self._seconds):
                response = await super().send(request, **options)
        except TimeoutError:
            raise httpx2.ReadTimeout(f"no complete answer within {self._seconds:g} s", request=request) from None
        except AnswerTooLong:
            raise upstream_too_long() from None
        if not response.is_success:
            return response
        if not response.content:
            return httpx2.Response(response.status_code, headers=response.headers, content=b"null", request=request)
        if "json" in response.headers.get("content-type", "").partition(";")[0]:
            try:
                from_json(response.content, allow_inf_nan=False)
            except ValueError:
                log.warning("an API's answer is no JSON, as it says it is", extra={"api": origin_of(str(request.url))})
                raise upstream_failed() from None
        return response

    async def disconnect(self) -> None:
        await self._connections.aclose()

    async def _bound(self, response: httpx2.Response) -> None:
        await bound(self._limit)(response)

    async def _stay_on_the_host(self, response: httpx2.Response) -> None:
        """Let a redirect stand as the answer if it leads to another host: the headers, which hold secrets, are meant for this one."""
        if not response.has_redirect_location:
            return
        url = response.request.url
        target = url.join(response.headers["location"])
        is_secured = (url.scheme, target.scheme, url.port, target.port) == ("http", "https", None, None)
        if target.host != url.host or not (is_secured or (url.scheme, url.port) == (target.scheme, target.port)):
            log.warning("a redirect is not followed", extra={"api": origin_of(str(url)), "target": origin_of(str(target))})
            del response.headers["location"]
