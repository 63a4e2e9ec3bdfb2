"""The HTTP client for the operator's URLs: https, http and file."""

import ssl
from email.utils import formatdate
from pathlib import Path
from urllib.request import url2pathname

import anyio
import httpx

CONNECT_SECONDS, READ_SECONDS = 10.0, 30.0


class FileTransport(httpx.AsyncBaseTransport):
    """Responds to file:// URLs as a web server would: 200 with the bytes, 304 if unchanged, 404 if missing."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The file that the URL names, or an error response that says why it cannot be read."""
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
    """A file in chunks."""

    def __init__(self, path: anyio.Path) -> None:
        self._path = path

    async def __aiter__(self):  # type: ignore[no-untyped-def]  # httpx declares no type that an async generator fits
        async with await self._path.open("rb") as file:
            while chunk := await file.read(1 << 18):
                yield chunk


def feeds_client(trust: ssl.SSLContext) -> httpx.AsyncClient:
    """A client that follows redirects, has timeouts, and also reads file:// URLs."""
    return httpx.AsyncClient(
        verify=trust,
        base_url="file://localhost",  # httpx reads file:///path, which has no host, as relative to this
        mounts={"file://": FileTransport()},
        follow_redirects=True,
        timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
        headers={"user-agent": "campus"},
    )
