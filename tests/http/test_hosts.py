"""Which hosts are served, and which are someone else's name for our address."""

import pytest
from starlette.types import Receive, Scope, Send

from campus.http.hosts import Hosts

pytestmark = pytest.mark.anyio

PUBLIC = "https://campus.example"


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


def status_for(host: str, *, public_url: str = PUBLIC, server: tuple[str, int] | None = ("10.1.2.3", 8000)) -> int:
    headers = [(b"host", host.encode("latin-1"))]
    problem = Hosts(public_url, port=8000).problem({"headers": headers, "server": server}, dict(headers))
    return problem.status if problem else 200


OUR_OWN = [
    "campus.example", "campus.example:443", "campus.example:8000", "CAMPUS.example", "campus.example.",
    "campus.example.:9", "localhost", "localhost:1", "LocalHost:65535", "127.0.0.1", "127.0.0.1:8000", "[::1]",
    "[::1]:8000", "10.1.2.3", "10.1.2.3:8000",
]  # fmt: skip
OTHERS = [
    "evil.example", "campus.example.evil.example", "evilcampus.example", "campus.example.evil",
    "localhost.evil.example", "127.0.0.1.nip.example", "10.1.2.4", "169.254.169.254", "0.0.0.0", "127.1", "2130706433",
    "0x7f000001", "[::]", "[::ffff:127.0.0.1]", "xn--cmpus-example",
]  # fmt: skip
MALFORMED = [
    "", " ", ":8000", "campus.example:http", "campus.example:123456", "campus.example:8000:1", "user@campus.example",
    "campus.example/", "campus.example, evil.example", "campus.example evil.example", "http://campus.example", "[::1",
    "::1", "cämpus.example", "campus.example\n", ".",
]  # fmt: skip


@pytest.mark.parametrize(("hosts", "status"), [(OUR_OWN, 200), (OTHERS, 421), (MALFORMED, 400)])
def test_our_own_names_are_served_at_any_port_others_are_misdirected_and_what_is_no_host_is_malformed(
    hosts: list[str], status: int
) -> None:
    assert {host: status_for(host) for host in hosts} == dict.fromkeys(hosts, status)


@pytest.mark.parametrize(
    ("server", "host"),
    [("::ffff:192.168.1.5", "192.168.1.5"), ("fe80::1", "[fe80::1]:8000"), ("fe80::1", "[fe80:0:0::1]"), ("127.0.0.2", "127.0.0.2:8000")],
)
def test_the_address_at_which_the_connection_came_in_is_served(server: str, host: str) -> None:
    assert status_for(host, server=(server, 8000)) == 200


def test_a_server_whose_own_end_is_unknown_serves_its_names_only() -> None:
    assert status_for("campus.example", server=None) == 200
    assert status_for("10.1.2.3", server=None) == 421


def test_a_public_address_may_be_numeric() -> None:
    assert status_for("[2001:db8::1]:8000", public_url="http://[2001:db8::1]:8000") == 200
    assert status_for("192.0.2.1", public_url="http://192.0.2.1:80") == 200


async def test_a_misdirected_request_learns_which_hosts_there_are(serving) -> None:
    async with serving(hello, public_url=PUBLIC) as served:
        answer = await served.get("/", host="rebound.example")
        assert (await served.get("/", host="campus.example")).body == b"hello"
    assert (answer.status, answer.json()["code"]) == (421, "misdirected_request")
    assert answer.json()["type"] == "/errors/misdirected_request"
    assert "campus.example" in answer.json()["detail"]
    assert "rebound" not in answer.body.decode()


async def test_a_request_has_one_host(serving) -> None:
    async with serving(hello) as served:
        for lines in (
            "GET / HTTP/1.0",
            "GET / HTTP/1.1",
            "GET / HTTP/1.1\r\nHost:",
            "GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost",
            "GET / HTTP/1.1\r\nHost: evil.example\r\nHost: localhost",
            "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example",
        ):
            answer = await served.ask(f"{lines}\r\n\r\n")
            assert (answer.status, answer.json()["code"]) == (400, "invalid_host"), lines
        assert (await served.get("/", "Accept: a", "Accept: b", "X-A: 1", "X-A: 2")).status == 200, "other headers may come twice"


async def test_an_address_in_the_request_line_does_not_stand_for_the_host(serving) -> None:
    async with serving(hello) as served:
        assert (await served.get("http://localhost/", host="evil.example")).status == 421
