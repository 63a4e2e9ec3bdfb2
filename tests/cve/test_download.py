"""Downloading a feed from a real server: conditions, redirects, retries, size limits, deadlines; and decompressing it."""

import gzip
import zlib
from collections.abc import AsyncIterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildings.cve.feeds.download import BLOCK, Copy, Fetcher, RetryPolicy, SizeLimits, shown_address, unpacked, whole
from buildings.cve.feeds.errors import FeedError, FeedRefused, FeedUnavailable
from tests import patient

pytestmark = pytest.mark.anyio

PATH = "/feed"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with patient.AsyncClient(follow_redirects=True) as made:
        yield made


@pytest.fixture
def fetcher(client) -> Fetcher:
    return Fetcher(
        client=client, feed="KEV", retry_policy=RetryPolicy(seconds=10, attempts=3, first_wait=0.01), size_limits=SizeLimits(sent=1000)
    )


async def test_a_feed_comes_as_it_was_sent_with_what_the_server_calls_it(publisher, fetcher) -> None:
    publisher.put(PATH, b"\x1f\x8bnot unpacked here", headers={"Content-Encoding": "gzip", "ETag": '"one"', "Last-Modified": "then"})
    download = await fetcher.fetch(publisher.url + PATH)
    assert download.body == b"\x1f\x8bnot unpacked here"
    assert download.copy == Copy(address=shown_address(publisher.url + PATH), etag='"one"', last_modified="then")


async def test_a_copy_that_is_held_is_asked_for_only_when_newer(publisher, fetcher) -> None:
    publisher.put(PATH, b"one")
    first = await fetcher.fetch(publisher.url + PATH)
    assert await fetcher.fetch(publisher.url + PATH, held=first.copy) is None
    assert publisher.asked[-1][1]["if-none-match"] == first.copy.etag
    publisher.put(PATH, b"two")
    assert (await fetcher.fetch(publisher.url + PATH, held=first.copy)).body == b"two"


async def test_a_copy_from_another_address_says_nothing_about_this_one(publisher, fetcher) -> None:
    publisher.put(PATH, b"one")
    await fetcher.fetch(publisher.url + PATH, held=Copy(address=shown_address(publisher.url + "/mirror"), etag='"x"', last_modified="then"))
    assert not {"if-none-match", "if-modified-since"} & publisher.asked[-1][1].keys()


async def test_unchanged_is_no_answer_to_a_request_without_a_condition(publisher, fetcher) -> None:
    publisher.put(PATH, status=304)
    with pytest.raises(FeedUnavailable, match="answered 304"):
        await fetcher.fetch(publisher.url + PATH)


async def test_a_redirect_to_a_file_of_this_machine_is_refused(publisher, tmp_path) -> None:
    (tmp_path / "secret").write_text("mine")

    class Files(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, content=(tmp_path / "secret").read_bytes())

    publisher.put(PATH, status=302, headers={"Location": f"file://localhost{tmp_path}/secret"})
    async with patient.AsyncClient(follow_redirects=True, mounts={"file://": Files()}) as client:
        fetcher = Fetcher(client=client, feed="KEV", retry_policy=RetryPolicy())
        with pytest.raises(FeedRefused, match="leads to a file of this machine"):
            await fetcher.fetch(publisher.url + PATH)


async def test_a_key_is_not_carried_to_another_address(publisher, fetcher) -> None:
    publisher.put("/elsewhere", b"scores")
    publisher.put(PATH, status=302, headers={"Location": "/elsewhere"})
    with pytest.raises(FeedUnavailable, match="answered 302"):
        await fetcher.fetch(publisher.url + PATH, headers={"apiKey": "secret"})
    assert not publisher.targets("/elsewhere")


async def test_a_key_is_in_no_log_however_often_it_is_tried(publisher, fetcher, caplog) -> None:
    publisher.put(PATH, status=503)
    with caplog.at_level("DEBUG"), pytest.raises(FeedUnavailable):
        await fetcher.fetch(publisher.url + PATH, headers={"apiKey": "hush-hush"})
    tries = [record for record in caplog.records if record.name == "stamina"]
    assert len(tries) == 2
    assert not [record for record in caplog.records if "hush-hush" in str(vars(record))]


@pytest.mark.parametrize(
    ("answer", "reason", "tries"),
    [
        *(({"status": status}, f"answered {status}", 3) for status in (429, 500, 503)),
        *(({"status": status}, f"answered {status}", 1) for status in (403, 404)),
        ({"body": b"half", "promised": 8}, "did not send a complete answer", 3),
        ({"body": b"x" * 1001}, "sends more than 1,000 bytes", 1),
    ],
)
async def test_what_may_pass_is_tried_again_and_nothing_else(publisher, fetcher, answer, reason: str, tries: int) -> None:
    publisher.put(PATH, **answer)
    with pytest.raises(FeedError, match=reason):
        await fetcher.fetch(publisher.url + PATH)
    assert len(publisher.targets(PATH)) == tries


async def test_nobody_listening_is_said_so(fetcher) -> None:
    with pytest.raises(FeedUnavailable, match="did not send a complete answer: ConnectError"):
        await fetcher.fetch("http://127.0.0.1:1/feed")


async def test_a_feed_that_trickles_is_given_up_at_the_deadline(publisher, client) -> None:
    publisher.put(PATH, b"x" * 500, pause=0.05)
    fetcher = Fetcher(client=client, feed="KEV", retry_policy=RetryPolicy(seconds=0.4, attempts=3, first_wait=0.01))
    with pytest.raises(FeedUnavailable, match=r"had not finished after 0\.4 seconds and [1-9]\d* bytes"):
        await fetcher.fetch(publisher.url + PATH)


MOST = 4 << 20


def opened(body: bytes, max_bytes: int = MOST) -> bytes:
    return b"".join(unpacked(body, feed="EPSS", max_bytes=max_bytes))


@given(st.binary(max_size=500), st.integers(1, 3000))
def test_what_was_packed_comes_out_again(piece: bytes, times: int) -> None:
    content = b"+" + piece * times
    assert opened(content) == content
    assert opened(gzip.compress(content, 1)) == content
    assert opened(gzip.compress(gzip.compress(content, 1))) == content
    assert whole(gzip.compress(content, 1), feed="EPSS", max_bytes=MOST) == content


def test_a_file_of_several_gzip_members_is_read_to_its_end() -> None:
    assert opened(gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lambda body: gzip.compress(gzip.compress(body))], ids=["plain", "gzip", "twice"])
def test_a_byte_order_mark_is_not_part_of_a_feed(pack) -> None:
    assert opened(pack(b"\xef\xbb\xbf{}")) == b"{}"
    assert whole(pack(b"\xef\xbb\xbf{}"), feed="KEV", max_bytes=MOST) == b"{}"


@pytest.mark.parametrize("url", ["https://me:hush@feeds.example/a.json?token=hush", "https://feeds.example/hush.json"])
def test_what_is_stored_of_an_address_holds_no_password_and_tells_addresses_apart(url: str) -> None:
    shown = shown_address(url)
    assert shown.startswith("https://feeds.example ")
    assert "hush" not in shown
    assert shown != shown_address(url + "x")
    assert shown == shown_address(url.replace("me:hush@", "you:secret@"))


def test_no_block_is_large_however_well_the_body_was_packed() -> None:
    packed = gzip.compress(bytes(MOST))
    assert len(packed) < 5000
    assert max(len(block) for block in unpacked(packed, feed="EPSS", max_bytes=MOST)) <= BLOCK


LINES = gzip.compress(b"CVE-1999-0001,0.5,1\n" * 1000)
NOISE = gzip.compress(zlib.compress(b"x" * 9999) * 50)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (gzip.compress(bytes(MOST + 1)), "unpacks to more than 4,194,304 bytes"),
        (gzip.compress(gzip.compress(bytes(MOST + 1))), "unpacks to more than 4,194,304 bytes"),
        (gzip.compress(b"") * 100_000, "more than 64 streams"),
        (LINES[:-20], "ends early"),
        (NOISE[:40] + bytes([NOISE[40] ^ 0xFF]) + NOISE[41:], "damaged"),
    ],
    ids=["a bomb", "a bomb within a gzip file", "very many members", "the start of a stream", "a damaged stream"],
)
def test_what_cannot_be_unpacked_within_bounds_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(FeedRefused, match=reason):
        opened(body)
