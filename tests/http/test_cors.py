"""Pages of other origins: any of them where the service has an https address, its own alone where it has not."""

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

pytestmark = pytest.mark.anyio

PAGE = "Origin: https://page.example"
PUBLIC = "https://localhost"
ASKED = "authorization, content-type, mcp-protocol-version, mcp-param-day, payment-signature, x-payment, idempotency-key, if-none-match"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Each path answers in its own way."""
    if scope["path"] == "/crash":
        raise RuntimeError
    kept = {"cache-control": "public, max-age=300", "etag": '"1"'} if scope["path"] == "/kept" else {"cache-control": "private, no-store"}
    await PlainTextResponse(scope["method"], headers=kept)(scope, receive, send)


async def test_without_an_origin_nothing_of_cors_shows(serving) -> None:
    async with serving(app, public_url=PUBLIC) as served:
        answer = await served.get()
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_every_origin_may_read_the_answer_and_the_headers_that_matter(serving) -> None:
    async with serving(app, public_url=PUBLIC) as served:
        answer = await served.get("/", PAGE)
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers
    exposed = set(answer.headers["access-control-expose-headers"].lower().split(", "))
    assert exposed >= {"mcp-session-id", "mcp-protocol-version", "www-authenticate", "retry-after", "ratelimit", "ratelimit-policy", "etag"}
    assert exposed >= {"payment-required", "payment-response", "x-request-id"}


async def test_a_preflight_allows_the_method_and_the_headers_that_agents_send(serving) -> None:
    async with serving(app, public_url=PUBLIC) as served:
        for method in ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD"):
            preflight = [PAGE, f"Access-Control-Request-Method: {method}", f"Access-Control-Request-Headers: {ASKED}"]
            answer = await served.get("/mcp", *preflight, method="OPTIONS")
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")
            assert method in answer.headers["access-control-allow-methods"].split(", ")
            assert set(ASKED.split(", ")) <= set(answer.headers["access-control-allow-headers"].lower().split(", "))


async def test_options_that_is_no_preflight_reaches_the_app(serving) -> None:
    async with serving(app, public_url=PUBLIC) as served:
        assert (await served.get("/", method="OPTIONS")).body == b"OPTIONS"
        assert (await served.get("/", PAGE, method="OPTIONS")).body == b"OPTIONS"


async def test_a_public_page_may_not_reach_into_a_private_network(serving) -> None:
    preflight = [PAGE, "Access-Control-Request-Method: POST", "Access-Control-Request-Private-Network: true"]
    async with serving(app, public_url=PUBLIC) as served:
        answer = await served.get("/mcp", *preflight, method="OPTIONS")
    assert answer.status == 400
    assert "access-control-allow-private-network" not in answer.headers


async def test_a_page_can_read_why_it_is_refused(serving) -> None:
    async with serving(app, public_url=PUBLIC) as served:
        crashed, misdirected = await served.get("/crash", PAGE), await served.get("/", PAGE, host="evil.example")
        too_large = await served.get("/", PAGE, "Content-Length: 2000000")
    assert (crashed.status, misdirected.status, too_large.status) == (500, 421, 413)
    for answer in (crashed, misdirected, too_large):
        assert answer.headers["access-control-allow-origin"] == "*"


async def test_what_caches_may_keep_says_that_it_varies_by_origin_and_the_rest_does_not_vary(serving) -> None:
    async with serving(app, public_url=PUBLIC) as served:
        for headers in ((), (PAGE,)):
            assert (await served.get("/kept", *headers)).headers["vary"].lower() == "origin"
        assert "vary" not in (await served.get("/")).headers


FOREIGN = (
    "https://evil.example",
    "null",
    "http://localhost.evil.example",
    "http://127.0.0.1.evil.example:80",
    "file://",
    "http://localhost@evil.example",
)


async def test_a_service_without_an_https_address_refuses_pages_of_others_before_anything_runs(serving) -> None:
    ran = []

    async def seen(scope: Scope, receive: Receive, send: Send) -> None:
        ran.append(scope["method"])
        await app(scope, receive, send)

    preflight = ["Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type"]
    async with serving(seen) as served:
        for origin in FOREIGN:
            for method, more in (("GET", []), ("POST", ["Content-Length: 0"]), ("OPTIONS", preflight)):
                answer = await served.get("/mcp", f"Origin: {origin}", *more, method=method)
                assert (answer.status, answer.json()["code"]) == (403, "origin_refused"), (origin, method)
                assert not [name for name in answer.headers if name.startswith("access-control")]
    assert ran == []


async def test_its_own_pages_and_those_of_the_machine_may_call_it(serving) -> None:
    async with serving(app) as served:
        for origin in (f"http://127.0.0.1:{served.port}", f"http://localhost:{served.port}", "http://localhost:6274", "http://[::1]:80"):
            answer = await served.get("/", f"Origin: {origin}")
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")
        for site, status in (("same-origin", 200), ("cross-site", 403)):
            assert (await served.get("/", "Origin: null", f"Sec-Fetch-Site: {site}")).status == status
    async with serving(app, public_url="http://campus.test") as served:
        for origin, status in (("http://campus.test", 200), ("http://campus.test:81", 403), ("http://other.test", 403)):
            assert (await served.get("/", f"Origin: {origin}", host="campus.test")).status == status
