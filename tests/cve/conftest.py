"""Feeds for tests: the real files if they are there, small generated ones, and a server that can misbehave."""

import gzip
import json
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc
import pytest
from cve.lists import Lists
from recorder.receivers import Authority, Receiver, make_authority, open_receiver

from buildings.cve.building import building
from buildings.cve.feeds.download import FetchLimits, RetryPolicy, SizeLimits
from campus.outbound.http_clients import guarded_client
from campus.testing import ORIGIN, Clock, TestCampus, open_campus

FEEDS = Path(__file__).parents[3] / "shared" / "feeds"
DAY = date(2026, 8, 21)
NOON = datetime(2026, 8, 21, 14, 0, tzinfo=UTC)

KEV, EPSS, NVD, MIRROR = "/kev.json", "/epss.csv.gz", "/rest/json/cves/2.0", "/mirror.json"


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    """Of modules: their tests may share a campus."""
    return "asyncio"


@pytest.fixture
def real_feeds() -> Path:
    if not FEEDS.is_dir():
        pytest.skip(f"the real feed files are not at hand: there is no {FEEDS}")
    return FEEDS


def kev_entry(cve_id: str, added: date, **more: Any) -> dict[str, Any]:
    """A listing as CISA publishes it; `more` replaces members."""
    return {
        "cveID": cve_id,
        "vendorProject": "Acme",
        "product": "Anvil",
        "vulnerabilityName": "Acme Anvil Gravity Vulnerability",
        "dateAdded": added.isoformat(),
        "shortDescription": "It falls.",
        "requiredAction": "Apply updates per vendor instructions.",
        "dueDate": (added + timedelta(days=14)).isoformat(),
        "knownRansomwareCampaignUse": "Unknown",
        "notes": "",
        "cwes": [],
    } | more


def kev_catalog(entries: Iterable[Mapping[str, Any]], *, released: str = "2026-08-21T17:00:00.000Z", **more: Any) -> bytes:
    """A release of the catalog."""
    listed = list(entries)
    head = {"title": "Catalog", "catalogVersion": released[:10].replace("-", "."), "dateReleased": released, "count": len(listed)}
    return json.dumps(head | {"vulnerabilities": listed} | more).encode()


def listings(count: int, *, first: int = 1000) -> list[dict[str, Any]]:
    """Listings from the first of July on, one more CVE each, 40 a day."""
    return [kev_entry(f"CVE-2026-{first + n}", date(2026, 7, 1) + timedelta(days=n // 40)) for n in range(count)]


def epss_file(scores: Mapping[str, float], *, scored: str = "2026-08-21T12:00:00Z", model: str = "v2026.06.15") -> bytes:
    """A day's scores, in gzip."""
    ordered = sorted(scores.values())
    rows = [f"{cve_id},{score},{bisect_right(ordered, score) / len(ordered)}" for cve_id, score in scores.items()]
    return gzip.compress("\n".join([f"#model_version:{model},score_date:{scored}", "cve,epss,percentile", *rows, ""]).encode())


def many_scores(count: int) -> dict[str, float]:
    """Scores of CVEs from CVE-2026-1000 on."""
    return {f"CVE-2026-{1000 + n}": round(n / count, 5) for n in range(count)}


def nvd_record(cve_id: str, **more: Any) -> dict[str, Any]:
    """An NVD record; `more` replaces members."""
    bare = {"id": cve_id, "sourceIdentifier": "cna@acme.example", "vulnStatus": "Analyzed", "lastModified": "2026-08-20T10:00:00.000"}
    return bare | {"metrics": {}, "references": []} | more


def nvd_page(records: Iterable[Mapping[str, Any]], *, start: int = 0, total: int | None = None) -> bytes:
    """A page of NVD's API, or a file."""
    given = list(records)
    head = {"resultsPerPage": len(given), "startIndex": start, "totalResults": len(given) if total is None else total}
    about = {"format": "NVD_CVE", "version": "2.0", "timestamp": "2026-08-21T13:00:00.000"}
    return json.dumps(head | about | {"vulnerabilities": [{"cve": record} for record in given]}).encode()


@dataclass(frozen=True)
class Make:
    """The functions that make small feeds, for tests that cannot import this file."""

    kev_entry: Callable[..., dict[str, Any]] = kev_entry
    kev_catalog: Callable[..., bytes] = kev_catalog
    listings: Callable[..., list[dict[str, Any]]] = listings
    epss_file: Callable[..., bytes] = epss_file
    many_scores: Callable[[int], dict[str, float]] = many_scores
    nvd_record: Callable[..., dict[str, Any]] = nvd_record
    nvd_page: Callable[..., bytes] = nvd_page


@pytest.fixture(scope="session")
def make() -> Make:
    """Makes small feeds."""
    return Make()


@dataclass(frozen=True)
class Page:
    """The publisher's answer at one path.

    `promised` is a Content-Length that may be wrong; `pause` is the time in seconds between single bytes of the body.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    promised: int | None = None
    pause: float = 0


@dataclass
class NvdApi:
    """NVD's API over some records: pages of at most `most`, `hasKev` for the CVEs in `kev`, and spans of `lastModified`."""

    records: list[dict[str, Any]] = field(default_factory=list)
    kev: frozenset[str] = frozenset()
    most: int = 2000

    def answer(self, target: str) -> Page:
        query = parse_qs(urlsplit(target).query, keep_blank_values=True)
        found = [one for one in self.records if "hasKev" not in query or one["id"] in self.kev]
        if "lastModStartDate" in query:
            first, last = (datetime.fromisoformat(query[name][0]) for name in ("lastModStartDate", "lastModEndDate"))
            found = [one for one in found if first <= datetime.fromisoformat(one["lastModified"]).replace(tzinfo=UTC) <= last]
        start = int(query.get("startIndex", ["0"])[0])
        return Page(nvd_page(found[start : start + self.most], start=start, total=len(found)))


@dataclass
class Publisher:
    """A web server: serves the test's pages, honours If-None-Match, and records its requests."""

    url: str
    pages: dict[str, Page | Callable[[str], Page]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def put(self, path: str, body: bytes = b"", **more: Any) -> None:
        self.pages[path] = Page(body, headers={"ETag": f'"{hash(body)}"', **more.pop("headers", {})}, **more)

    def targets(self, path: str) -> list[str]:
        return [target for target, _ in self.asked if target.startswith(path)]

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            lines = (await _head(stream)).decode().split("\r\n")
            target = lines[0].split(" ")[1]
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
            self.asked.append((target, headers))
            page = self.pages.get(target) or self.pages.get(target.partition("?")[0]) or Page(status=404)
            page = page(target) if callable(page) else page
            if headers.get("if-none-match") == page.headers.get("ETag", "none"):
                page = Page(status=304)
            with suppress(anyio.BrokenResourceError):  # the reader closed the connection
                await _answer(stream, page)


async def _head(stream: anyio.abc.SocketStream) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        received += await stream.receive()
    return received.partition(b"\r\n\r\n")[0]


async def _answer(stream: anyio.abc.SocketStream, page: Page) -> None:
    length = len(page.body) if page.promised is None else page.promised
    lines = [f"HTTP/1.1 {page.status} Said", f"Content-Length: {length}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in page.headers.items()]
    await stream.send("\r\n".join([*lines, "", ""]).encode())
    for byte in page.body if page.pause else ():
        await stream.send(bytes([byte]))
        await anyio.sleep(page.pause)
    if not page.pause and page.body:
        await stream.send(page.body)


@pytest.fixture
def nvd_api(publisher: Publisher) -> NvdApi:
    api = NvdApi()
    publisher.pages[NVD] = api.answer
    return api


@cache
def first_issues() -> Mapping[str, bytes]:
    return {
        KEV: kev_catalog(listings(120)),
        EPSS: epss_file(many_scores(200)),
        NVD: nvd_page([nvd_record("CVE-2026-1000")]),
    }


@asynccontextmanager
async def open_publisher() -> AsyncIterator[Publisher]:
    """The publisher of all three feeds, with a good small issue of each."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    served = Publisher(f"http://127.0.0.1:{port}")
    for path, body in first_issues().items():
        served.put(path, body)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, served.serve)
        yield served
        tasks.cancel_scope.cancel()
    await listener.aclose()


@pytest.fixture
async def publisher() -> AsyncIterator[Publisher]:
    async with open_publisher() as served:
        yield served


@pytest.fixture
def few(publisher: Publisher) -> Publisher:
    """The publisher of so few CVEs that a list of them, which has to be accepted, is made in no time."""
    publisher.put(KEV, kev_catalog(listings(40)))
    publisher.put(EPSS, epss_file(many_scores(100)))
    return publisher


OpenTestCampus = Callable[..., AbstractAsyncContextManager[TestCampus]]


@pytest.fixture(scope="session")
def open_test_campus() -> OpenTestCampus:
    @asynccontextmanager
    async def opened(url: str | None = None, *, clock: Clock | None = None, settings: Mapping[str, Any] | None = None, **more: Any):  # type: ignore[no-untyped-def]
        addresses = {"kev_url": KEV, "epss_url": EPSS, "nvd_url": NVD, "kev_mirror_url": MIRROR}
        table = {name: f"{url}{path}" for name, path in addresses.items()} if url else {"kev_mirror_url": "file:///nowhere"}
        table |= {"osv_url": f"{url}/osv" if url else "file:///nowhere", "osv_ecosystems": []}
        async with open_campus(clock=clock or Clock(NOON), settings=table | (settings or {}), cve=building, **more) as campus:
            yield campus

    return opened


@pytest.fixture
def limits() -> Callable[..., FetchLimits]:
    def made(*, seconds: float = 10.0, attempts: int = 2, **size_limits: int) -> FetchLimits:
        return FetchLimits(
            retry_policy=RetryPolicy(seconds=seconds, attempts=attempts, first_wait=0.01),
            size_limits=SizeLimits(**size_limits),
            nvd_window=0.0,
        )

    return made


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that signed the receiver's certificate."""
    return make_authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
async def receiver(authority: Authority) -> AsyncIterator[Receiver]:
    async with open_receiver(authority) as served:
        yield served


@pytest.fixture(scope="session")
def open_lists(make: Make, open_test_campus: OpenTestCampus, authority: Authority) -> Callable[..., AbstractAsyncContextManager[Lists]]:
    """Opens a campus whose lists the test makes, with a publisher of its own or one that it shares."""

    @asynccontextmanager
    async def opened(publisher: Publisher | None = None, *, clock: Clock | None = None, **more: Any) -> AsyncIterator[Lists]:
        clock = clock or Clock(NOON)
        web = more.pop("web", None) or guarded_client(ORIGIN, allowed_hosts=["localhost"], trust=authority.client)
        async with (
            nullcontext(publisher) if publisher else open_publisher() as feeds,
            open_test_campus(feeds.url, clock=clock, web=web, **more) as campus,
        ):
            lists = Lists(campus, clock, feeds, make, await campus.key("cve"))
            feeds.put(EPSS, epss_file(many_scores(100)))
            lists.publish()
            await campus.run("refresh", accept=True)
            yield lists

    return opened
