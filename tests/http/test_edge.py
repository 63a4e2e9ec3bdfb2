"""What every request gets: an id, careful headers, a line in the log; and what a caller learns of a crash."""

import logging

import anyio
import httpx
import pytest
from patience import patience
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Message, Receive, Scope, Send

from campus.context import context_of
from campus.errors import StorageUnavailable
from campus.http.edge import Edge
from campus.http.health import Health
from campus.http.response import CACHED_RESPONSES, SecurityHeaders
from campus.http.response_cycle import KeptHeads
from tests import patient

pytestmark = pytest.mark.anyio

START: Message = {"type": "http.response.start", "status": 200, "headers": ((b"content-length", b"5"),)}
TRACE = "0af7651916cd43dd8448eb211c80319c"


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Sends the same message objects each time."""
    context_of(scope).route = "/hello/{name}"
    await send(START)
    await send({"type": "http.response.body", "body": b"hello"})


async def crash(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError("the secret of the service")


def records(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, object]]:
    return [vars(record) for record in caplog.records if record.name == name]


async def test_a_sane_request_id_is_repeated(serving) -> None:
    async with serving(hello) as served:
        for sent in ("abc-123_X.y", "a", "x" * 128):
            assert (await served.get("/", f"X-Request-Id: {sent}")).headers["x-request-id"] == sent


HOSTILE = ["", "a b", "a/b", "ä", "x" * 129, "x" * 10_000, "a;b", '"a"', "<script>", "${jndi:ldap}", "a\tb", "%0d%0aX-Evil:1"]


async def test_a_hostile_request_id_is_replaced_and_a_line_break_in_one_reaches_no_answer(serving) -> None:
    async with serving(hello) as served:
        for sent in HOSTILE:
            answer = await served.get("/", f"X-Request-Id: {sent}")
            assert (answer.status, answer.headers["x-request-id"] == sent, len(answer.headers["x-request-id"])) == (200, False, 24), sent
            assert "x-evil" not in answer.headers
        for sent in ("a\rX-Evil: 1", "a\nX-Evil: 1", "a\r\n X-Evil: 1", "a\x00b"):
            answer = await served.get("/", f"X-Request-Id: {sent}")
            assert "x-evil" not in answer.headers, sent
            assert "evil" not in answer.headers.get("x-request-id", "").lower(), sent


async def test_new_request_ids_differ_and_the_app_knows_its_own(serving) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(scope["request_id"])(scope, receive, send)

    async with serving(app) as served:
        answers = [await served.get() for _ in range(20)]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 20
    assert all(answer.body.decode() == answer.headers["x-request-id"] for answer in answers)


async def test_every_response_makes_browsers_careful(serving) -> None:
    async with serving(hello) as served:
        for answer in [await served.get(), await served.get(host="evil.example")]:
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "same-origin"
            assert answer.headers["content-security-policy"].startswith("default-src 'none'")
            assert "server" not in answer.headers
            assert "strict-transport-security" not in answer.headers


async def test_a_response_keeps_the_policy_that_it_sets_itself(serving) -> None:
    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        await HTMLResponse("<p>", headers={"Content-Security-Policy": "default-src 'self'"})(scope, receive, send)

    async with serving(page) as served, served.connected() as connection:
        await connection.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await connection.rest()
    assert answer.lower().count(b"content-security-policy") == 1
    assert b"default-src 'self'" in answer


async def test_browsers_stay_on_https_where_the_service_is(serving) -> None:
    async with serving(hello, public_url="https://campus.example") as served:
        assert (await served.get()).headers["strict-transport-security"] == "max-age=31536000"


async def test_what_an_app_sends_again_and_again_does_not_grow(serving) -> None:
    async with serving(hello) as served:
        first, second = await served.get(), await served.get()
    assert first.headers.keys() == second.headers.keys()
    assert START["headers"] == ((b"content-length", b"5"),)


async def test_headers_that_differ_from_response_to_response_each_go_out_as_they_are(serving) -> None:
    async def counting(scope: Scope, receive: Receive, send: Send) -> None:
        number = scope["query_string"]
        pair = (b"x-number", number) if int(number) % 2 else [b"x-number", number]  # ASGI allows both
        await send({"type": "http.response.start", "status": 200, "headers": [pair, (b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    numbers = [*range(CACHED_RESPONSES + 10), *range(10)]
    async with serving(counting) as served, served.connected() as connection:
        for number in numbers:
            await connection.send(b"GET /?%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % number)
            answer = await connection.answer()
            assert (answer.headers["x-number"], answer.headers["x-content-type-options"]) == (str(number), "nosniff")


def test_headers_that_repeat_what_a_caller_sent_at_length_are_not_kept() -> None:
    heads, security = KeptHeads(), SecurityHeaders("http://localhost")
    for length, are_kept in ((100, True), (30_000, False)):
        location = ((b"location", b"/cve?" + b"x" * length),)
        assert (heads[307, location] is heads[307, location]) is are_kept
        assert (security.added_to(location) is security.added_to(location)) is are_kept


async def test_a_crash_is_a_problem_that_tells_nothing_of_its_cause(serving, caplog) -> None:
    async with serving(crash) as served:
        answer = await served.get("/v1/beat/s3cr3t?token=t0k3n", "X-Request-Id: mine")
    assert (answer.status, answer.headers["content-type"]) == (500, "application/problem+json")
    assert (answer.json()["code"], answer.json()["request_id"]) == ("internal_error", "mine")
    assert b"secret" not in answer.body
    assert b"ValueError" not in answer.body
    [record] = records(caplog, "campus.http.edge")
    assert (record["levelname"], record["request_id"], record["route"]) == ("ERROR", "mine", "/v1/beat")
    assert "s3cr3t" not in caplog.text
    assert "t0k3n" not in caplog.text
    assert "the secret of the service" in caplog.text  # the operator does learn the cause


async def test_a_crash_behind_a_named_route_is_logged_under_its_name(serving, caplog) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        context_of(scope).route = "/{id}"
        raise ValueError

    async with serving(app) as served:
        await served.get("/s3cr3t")
    assert records(caplog, "campus.http.edge")[0]["route"] == "/{id}"
    assert "s3cr3t" not in caplog.text


async def test_storage_that_is_away_for_a_moment_is_503_and_says_when_to_come_back(serving, caplog) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise StorageUnavailable("the disk is full")

    async with serving(app) as served:
        answer = await served.get()
    assert (answer.status, answer.json()["code"], answer.headers["retry-after"]) == (503, "storage_unavailable", "5")
    assert b"disk" not in answer.body
    assert records(caplog, "campus.http.edge")[0]["levelname"] == "WARNING"


async def test_a_crash_in_the_middle_of_an_answer_cuts_it_off(serving, caplog) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("torn")

    async with serving(app) as served, served.connected() as connection:
        await connection.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await connection.rest()
    assert answer.endswith(b"half")
    assert "torn" in caplog.text


async def test_a_caller_that_leaves_is_no_error(serving, caplog) -> None:
    caplog.set_level(logging.INFO)
    begun, done = anyio.Event(), anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async for part in Request(scope, receive).stream():
                assert part == b"ab"
                begun.set()
        finally:
            done.set()

    async with serving(app) as served:
        with anyio.fail_after(patience(20)):
            async with served.connected() as connection:
                await connection.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab")
                await begun.wait()
            await done.wait()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [line["status"] for line in records(caplog, "campus.access")] == [499]


async def test_the_log_has_one_line_for_each_request_as_data_and_no_path(serving, caplog) -> None:
    caplog.set_level(logging.INFO)
    async with serving(hello) as served:
        await served.get("/hello/s3cr3t?s=t0k3n", "X-Request-Id: mine", f"traceparent: 00-{TRACE}-b7ad6b7169203331-01")
    [line] = records(caplog, "campus.access")
    assert (line["client"], line["method"], line["status"], line["request_id"], line["route"], line["trace"]) == (
        "127.0.0.1",
        "GET",
        200,
        "mine",
        "/hello/{name}",
        TRACE,
    )
    assert isinstance(line["ms"], float)
    assert "s3cr3t" not in str(line)
    assert "t0k3n" not in str(line)


async def test_a_trace_that_is_not_well_formed_is_not_logged(serving, caplog) -> None:
    caplog.set_level(logging.INFO)
    malformed = ("garbage", f"00-{TRACE}", f"00-{TRACE.upper()}-b7ad6b7169203331-01", "00-" + "0" * 5_000)
    async with serving(hello) as served:
        for sent in malformed:
            assert (await served.get("/", f"traceparent: {sent}")).status == 200
    assert ["trace" in line for line in records(caplog, "campus.access")] == [False] * len(malformed)


async def test_requests_are_not_logged_where_the_operator_turned_it_off(serving, caplog) -> None:
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.WARNING, logger="campus.access")
    async with serving(hello) as served:
        await served.get()
    assert not records(caplog, "campus.access")


async def test_what_was_refused_before_it_was_a_request_is_logged_too(serving, caplog) -> None:
    caplog.set_level(logging.INFO)
    async with serving(hello) as served:
        await served.ask(b"GARBAGE\r\n\r\n")
    [line] = records(caplog, "campus.access")
    assert (line["client"], line["status"], line["code"]) == ("127.0.0.1", 400, "invalid_http")


async def test_the_log_has_the_callers_address_behind_a_proxy_and_a_dash_for_no_route(serving, caplog) -> None:
    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b"")(scope, receive, send)

    caplog.set_level(logging.INFO)
    async with serving(silent) as served:
        await served.get("/s3cr3t", "X-Forwarded-For: 2001:db8::7")
    [line] = records(caplog, "campus.access")
    assert (line["client"], line["route"]) == ("2001:db8::7", "-")


async def test_one_call_too_many_is_503_while_the_probes_still_answer(serving) -> None:
    async def all_well() -> dict[str, list[str]]:
        return {}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        inside.set()
        await release.wait()
        await hello(scope, receive, send)

    inside, release = anyio.Event(), anyio.Event()
    async with serving(app, calls=1, probes=Health(all_well).probes) as served, served.connected() as first:
        await first.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with anyio.fail_after(patience(20)):  # for ever, if the limit were one lower
            await inside.wait()
        refused, healthy = await served.get(), await served.get("/healthz")
        release.set()
        assert (await first.answer()).body == b"hello"
        assert (await served.get()).body == b"hello"
    assert (refused.status, refused.json()["code"], refused.headers["retry-after"]) == (503, "overloaded", "1")
    assert healthy.status == 200


FORWARDED = {
    "198.51.100.7": "198.51.100.7",
    "192.0.2.66, 198.51.100.7": "198.51.100.7",  # what a caller says of itself stands before what the proxy saw
    "198.51.100.7, 127.0.0.1": "198.51.100.7",
    "198.51.100.7\r\nX-Forwarded-For: 127.0.0.1": "198.51.100.7",
    "2001:db8::7": "2001:db8::7",
    "127.0.0.1": "127.0.0.1",
    "198.51.100.7, unknown": "127.0.0.1",
    "'; DROP TABLE": "127.0.0.1",
    "": "127.0.0.1",
    "198.51.100.7:4711": "198.51.100.7",
    "[2001:db8::7]:4711": "2001:db8::7",
    "198.51.100.7, [::1]:80": "198.51.100.7",
    "198.51.100.7, ::ffff:127.0.0.1": "198.51.100.7",  # a proxy that listens on both families in one socket
    "::ffff:198.51.100.7": "198.51.100.7",
    "198.51.100.7, 10.1.2.3": "198.51.100.7",
    "198.51.100.7, ::ffff:10.1.2.3": "198.51.100.7",
    "198.51.100.7, 11.1.2.3": "11.1.2.3",
    "198.51.100.7, 127.0.0.1, 10.9.9.9": "198.51.100.7",
    "198.51.100.7, unknown, 10.9.9.9": "127.0.0.1",
    "1" * 5_000: "127.0.0.1",
}
PROXIES = ("127.0.0.1", "::1", "10.0.0.0/8")


async def caller(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(f"{scope['client'][0]} {scope['scheme']}")(scope, receive, send)


async def test_a_proxy_on_this_machine_is_believed(serving) -> None:
    async with serving(caller, trusted_proxies=PROXIES) as served:
        for sent, address in FORWARDED.items():
            answer = await served.get("/", f"X-Forwarded-For: {sent}", "X-Forwarded-Proto: https")
            assert answer.body.decode() == f"{address} https", sent


async def test_where_the_server_knows_no_peer_nobody_is_believed() -> None:
    async def from_nowhere(scope: Scope, receive: Receive, send: Send) -> None:
        await edge({**scope, "client": None}, receive, send)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(str(scope["client"]))(scope, receive, send)

    edge = Edge(app, public_url="http://localhost", port=80)
    async with patient.AsyncClient(transport=httpx.ASGITransport(from_nowhere), base_url="http://localhost") as client:
        assert (await client.get("/", headers={"X-Forwarded-For": "198.51.100.7"})).text == "None"


async def test_a_proxy_that_is_not_trusted_is_not_believed(serving) -> None:
    async with serving(caller, trusted_proxies=("10.0.0.1",)) as served:
        answer = await served.get("/", "X-Forwarded-For: 198.51.100.7", "X-Forwarded-Proto: https")
    assert answer.body == b"127.0.0.1 http"


async def test_a_proxy_speaks_http_or_https(serving) -> None:
    async with serving(caller) as served:
        for sent in ("ftp", "javascript", "", "http, ftp", "wss", "ws"):
            assert (await served.get("/", f"X-Forwarded-Proto: {sent}")).body == b"127.0.0.1 http", sent
