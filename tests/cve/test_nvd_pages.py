"""Reading all of NVD: page after page, or one file."""

import gzip
from collections.abc import AsyncIterator

import httpx
import pytest

from buildings.cve.feeds.acceptance import FeedRefused, FeedUnavailable
from buildings.cve.feeds.download import Fetcher, RetryPolicy
from buildings.cve.feeds.nvd_pages import pause_between_pages, read_nvd

pytestmark = pytest.mark.anyio

PATH = "/rest/json/cves/2.0"


@pytest.fixture
async def fetcher() -> AsyncIterator[Fetcher]:
    async with httpx.AsyncClient(follow_redirects=True) as client:
        yield Fetcher(client=client, feed="NVD", retry_policy=RetryPolicy(seconds=10, attempts=1))


def page_address(start: int) -> str:
    return f"{PATH}?hasKev&resultsPerPage=2000&startIndex={start}"


@pytest.fixture
def three_pages(publisher, make) -> list[str]:
    """4,100 records in pages of 2,000; their identifiers."""
    ids = [f"CVE-2026-{1000 + n}" for n in range(4100)]
    for start in range(0, 4100, 2000):
        records = [make.nvd_record(cve_id) for cve_id in ids[start : start + 2000]]
        publisher.put(page_address(start), make.nvd_page(records, start=start, total=4100))
    return ids


async def test_the_api_is_paged_past_2000(publisher, fetcher, three_pages) -> None:
    read = await read_nvd(fetcher, publisher.url + PATH, window=0)
    assert [record.cve_id for record in read.records] == three_pages
    assert publisher.targets(PATH) == [page_address(start) for start in (0, 2000, 4000)]
    assert read.issue.entries == 4100
    assert all("apikey" not in headers for _, headers in publisher.asked)


async def test_the_key_goes_along_as_a_header(publisher, fetcher, three_pages) -> None:
    await read_nvd(fetcher, publisher.url + PATH, api_key="secret", window=0)
    assert [headers["apikey"] for _, headers in publisher.asked] == ["secret"] * 3
    assert not any("secret" in target for target, _ in publisher.asked)


async def test_nvds_rate_is_5_requests_in_30_seconds_and_50_with_a_key() -> None:
    assert pause_between_pages(has_key=False) * 5 == 30
    assert pause_between_pages(has_key=True) * 50 == 30


async def test_a_page_that_does_not_follow_the_last_is_refused(publisher, fetcher, make) -> None:
    publisher.put(PATH, make.nvd_page([make.nvd_record("CVE-2026-1000")], start=0, total=9))
    with pytest.raises(FeedRefused, match="the page from 1 on begins at 0"):
        await read_nvd(fetcher, publisher.url + PATH, window=0)


async def test_an_empty_page_before_the_end_is_refused(publisher, fetcher, make) -> None:
    publisher.put(PATH, make.nvd_page([], total=9))
    with pytest.raises(FeedRefused, match="holds 0 of 9 records"):
        await read_nvd(fetcher, publisher.url + PATH, window=0)


async def test_a_page_that_fails_fails_the_reading(publisher, fetcher, three_pages) -> None:
    publisher.put(page_address(2000), status=503)
    with pytest.raises(FeedUnavailable, match="answered 503"):
        await read_nvd(fetcher, publisher.url + PATH, window=0)


@pytest.mark.parametrize("name", ["/nvdcve-2.0-modified.json", "/nvdcve-2.0-modified.json.gz"])
async def test_a_file_in_its_format_is_read_at_once_and_held(publisher, fetcher, make, name: str) -> None:
    body = make.nvd_page([make.nvd_record("CVE-2026-1000")])
    publisher.put(name, gzip.compress(body) if name.endswith("gz") else body)
    read = await read_nvd(fetcher, publisher.url + name)
    assert [record.cve_id for record in read.records] == ["CVE-2026-1000"]
    assert await read_nvd(fetcher, publisher.url + name, held=read.copy) is None


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"startIndex": 0, "totalResults": 0, "format": "OTHER"}'])
async def test_what_is_not_nvds_format_is_refused(publisher, fetcher, body: bytes) -> None:
    publisher.put(PATH, body)
    with pytest.raises(FeedRefused, match=r"not NVD's JSON 2\.0"):
        await read_nvd(fetcher, publisher.url + PATH)
