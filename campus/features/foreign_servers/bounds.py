"""Bounds what another server may send: bytes are counted before anything is parsed or kept."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from httpx2 import AsyncByteStream, AsyncClient, Response, SSEError, StreamError, Timeout

from campus.features.foreign_servers.bounded_lines import TOO_LONG

TIMEOUT = Timeout(30.0, read=300.0)
"""mcp's own, where its caller names none."""
PLAIN = {"Accept-Encoding": "identity"}


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
