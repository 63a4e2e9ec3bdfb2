"""Whoever looks at a page: a browser whose requests a campus of this process answers, so that nothing listens and any clock holds."""

import gzip
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
from forms import HTML, shown
from starlette.types import ASGIApp

from tests import patient

ORIGIN = "https://campus.test"
HOP_BY_HOP = ("content-length", "transfer-encoding", "content-encoding", "set-cookie")


@dataclass
class Visitor:
    """One browser: its cookies are here, and what it opened."""

    http: httpx.AsyncClient
    is_offline: bool = False  # Its streams of events are lost, as when the network is.
    sizes: dict[str, int] = field(default_factory=dict)
    """How many bytes of each page a server sends, compressed."""

    @property
    def origin(self) -> str:
        return str(self.http.base_url).rstrip("/")

    async def fetch(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> tuple[int, dict[str, str], bytes]:
        wanted = {name: value for name, value in headers.items() if name.lower() in ("accept", "content-type")}
        asked = {**wanted, "Sec-Fetch-Site": "same-origin"}
        answer = await self.http.request(method, url, headers=asked, content=body, follow_redirects=True)  # a browser asks no route again
        self.sizes[httpx.URL(url).raw_path.decode()] = len(gzip.compress(answer.content))
        return answer.status_code, {name: value for name, value in answer.headers.items() if name not in HOP_BY_HOP}, answer.content

    async def send(self, path: str, /, *, page: str, **fields: str) -> str:
        """Send a form that is on a page, as its reader does; the address at which the answer is shown."""
        shown_there = (await self.http.get(page, headers=HTML)).text
        forms: list[str] = re.findall(rf'<form[^>]* action="{re.escape(path)}(?:\?[^"]*)?".*?</form>', shown_there, re.DOTALL)
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', next(iter(forms), "")))
        answer = await self.http.post(path, data=hidden | fields, headers=HTML)
        location: str = answer.headers.get("location", path)
        await shown(self.http, answer, HTML)
        return location

    async def sign_in(self, token: str) -> None:
        assert await self.send("/keys", page="/keys", key=token) == "/keys"


@asynccontextmanager
async def visiting(app: ASGIApp, *, address: str = "192.0.2.1", origin: str = ORIGIN) -> AsyncIterator[Visitor]:
    transport = httpx.ASGITransport(app, client=(address, 1))
    async with patient.AsyncClient(transport=transport, base_url=origin) as http:
        yield Visitor(http)
