"""Every URL that a caller may not name is refused by the rule that it breaks, and no connection is made."""

import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from outbound.conftest import Network

from campus.errors import TargetRefused
from campus.outbound import GuardedClient
from campus.outbound.http_clients import guarded_client
from campus.outbound.public_hosts import UrlRules, special_network

pytestmark = pytest.mark.anyio
REFUSED: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("refused_urls.toml").read_text())
CASES = [(rule, url) for rule, urls in REFUSED.items() for url in urls]
BY_PYTHON_TOO = ("https://[::1]]/", "https://[::1]x/")
"""Some patch releases of Python do not even split these."""
TAKEN = [
    "https://hooks.good.dev",
    "https://hooks.good.dev/",
    "https://hooks.good.dev:443/in",
    "https://hooks.good.dev:8443/in?x=1&y=%23",
    "HTTPS://Hooks.GOOD.dev/In",
    "https://discord.com/api/webhooks/1/a-b_c?wait=true",
    "https://xn--hks-sna8a.good.dev/",
    "https://a.b.c.d.e.good.xn--p1ai/",
    "https://1.2.3.good.dev/",
    "https://hooks.good.dev/@127.0.0.1/",
    "https://hooks.good.dev/?url=http://127.0.0.1/",
]
ADDRESSES: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("addresses.toml").read_text())


@pytest.fixture
def web(open_client: Callable[..., GuardedClient]) -> GuardedClient:
    return open_client()


def refusal_of(url: str, web: GuardedClient) -> TargetRefused | None:
    try:
        web.check_url(url)
    except TargetRefused as refused:
        return refused
    return None


@pytest.mark.faults("strangers' targets")
def test_a_url_that_breaks_a_rule_is_refused_by_it(web: GuardedClient) -> None:
    for rule, url in CASES:
        refused = refusal_of(url, web)
        assert refused is not None, f"{url!a} breaks the rule {rule}"
        assert refused.rule == rule or (url in BY_PYTHON_TOO and refused.rule == "url"), ascii(url)
        assert re.fullmatch(r"(The URL|Names).*[;,] .*\.", str(refused)), f"{url!a}: what is wrong, then what to send"


async def test_a_public_url_is_taken(web: GuardedClient) -> None:
    for url in TAKEN:
        web.check_url(url)
        await web.check_target(url)


async def test_no_refused_url_looks_anything_up_or_opens_a_socket() -> None:
    calls: list[str] = []
    listening = True
    sys.addaudithook(lambda event, _: calls.append(event) if listening and event in ("socket.connect", "socket.getaddrinfo") else None)
    async with guarded_client("https://campus.dev", allowed_hosts={"allowed.dev"}) as web:
        for _, url in CASES:
            with pytest.raises(TargetRefused):
                await web.post(url, content=b"{}")
            with pytest.raises(TargetRefused):
                await web.check_target(url)
        assert calls == []
    async with guarded_client("https://campus.dev", allowed_hosts={"127.0.0.1"}) as web:
        with pytest.raises(httpx.ConnectError):
            await web.post("http://127.0.0.1:1/")
    listening = False
    assert calls == ["socket.getaddrinfo", "socket.connect"], "or the test would hear nothing"


async def test_a_request_that_was_made_without_the_client_is_refused_too(open_client: Callable[..., GuardedClient]) -> None:
    net, sent = Network(), 0
    web = open_client(network=net)
    for _, url in CASES:
        try:
            request = httpx.Request("POST", url)
        except httpx.InvalidURL:
            continue
        if request.url.raw_host.endswith((b".good.dev", b".evil.dev")) and request.url.port in (None, 8443) and not request.url.userinfo:
            continue  # the name of a public host has come of it
        with pytest.raises((TargetRefused, httpx.UnsupportedProtocol)):
            await web.send(request)
        sent += 1
    assert sent > 150
    assert net.dialled == []


def test_a_long_url_is_refused(web: GuardedClient) -> None:
    web.check_url("https://hooks.good.dev/".ljust(2048, "a"))
    with pytest.raises(TargetRefused, match="2049 characters; 2048 are the most"):
        web.check_url("https://hooks.good.dev/".ljust(2049, "a"))
    with pytest.raises(TargetRefused) as caught:
        web.check_url(f"https://{'a.' * 130}dev/")
    assert caught.value.rule == "name"


def test_no_refusal_repeats_the_secret_parts_of_a_url(web: GuardedClient) -> None:
    for url in (
        "http://hooks.good.dev/hush",
        "https://u:hush@hooks.good.dev/",
        "https://hooks.good.dev/#hush",
        "https://10.0.0.1/hush",
        "hush",
    ):
        with pytest.raises(TargetRefused) as caught:
            web.check_url(url)
        assert "hush" not in str(caught.value)


@pytest.mark.faults("strangers' targets")
async def test_a_name_that_leads_to_a_private_address_is_refused(open_client: Callable[..., GuardedClient]) -> None:
    def lookup(host: str, port: int) -> Sequence[str]:
        return ["1.1.1.1", leads_to, "2606:4700:4700::1111"]

    web = open_client(lookup)
    for leads_to in ADDRESSES["special"]:
        for calling in (web.check_target, web.get, web.post):
            with pytest.raises(TargetRefused, match="does not lead to the public internet") as caught:
                await calling("https://hooks.good.dev/")
            assert caught.value.rule == "address", leads_to
            assert leads_to not in str(caught.value), "where a private name leads is nobody's business"


def test_the_neighbours_of_special_networks_are_public() -> None:
    assert [address for address in ADDRESSES["public"] if special_network(address)] == []


@given(st.integers(0, 2**32 - 1))
@pytest.mark.faults("strangers' targets")
def test_an_address_that_is_not_public_is_not_so_in_any_form(number: int) -> None:
    plain = ip_address(number)
    for form in (f"::ffff:{plain}", f"::{plain}", f"64:ff9b::{plain}", str(ip_address(0x2002 << 112 | number << 80))):
        assert special_network(form)
    assert special_network(str(plain)) or plain.is_global


HOSTS = st.sampled_from(["127.0.0.1", "[::1]", "localhost", "hooks.good.dev", "campus.dev", "0x7f.1", "good.dev."])
PIECES = st.sampled_from(
    ["https", "http", ":", "/", "//", "@", "#", "?", "\\", ".", "%2e", "%40", "443", "8443", "80", "[", "]", " ", "\t", "。", "①"]
)


@given(st.one_of(st.text(max_size=40), st.lists(st.one_of(HOSTS, PIECES, st.text(max_size=3)), max_size=9).map("".join)))
@example("//[")
@example("https://[::1/")
@example("https://[x]/")
@example("https://[127.0.0.1]/")
def test_whatever_is_sent_is_taken_or_refused_and_raises_nothing_else(text: str) -> None:
    for url in (text, f"https://{text}", f"https://{text}.dev/", f"https://good.dev:{text}/", f"http://allowed.dev{text}"):
        try:
            found = UrlRules("campus.dev", {"allowed.dev"}).check(url)
        except TargetRefused:
            continue
        assert found.host
        assert 0 < found.port < 65_536


@given(st.lists(st.one_of(HOSTS, PIECES, st.text(max_size=3)), max_size=9).map("".join).map("https://{}".format))
@example("https://hooks.good.dev")
def test_what_is_taken_means_the_same_public_name_to_every_parser(url: str) -> None:
    try:
        UrlRules("campus.dev").check(url)
    except TargetRefused:
        return
    read, split = httpx.URL(url), urlsplit(url)
    assert read.scheme == split.scheme == "https"
    assert read.raw_host.decode() == split.hostname
    assert (read.port or 443) == (split.port or 443)
    assert (split.port or 443) in (443, 8443)
    assert re.fullmatch(r"([a-z0-9-]+\.)+[a-z][a-z0-9-]*", split.hostname or "")
    assert split.hostname not in ("campus.dev", "localhost")
