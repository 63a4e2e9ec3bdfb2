"""Pages for people: their form by Accept, their headers, the tokens of their forms, and what hostile texts do to them."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Literal
from urllib.parse import quote, quote_plus

import pytest
from forms import token_in
from pages.harbour import make_harbour
from pages.hostile import ALL_AT_ONCE, harm_in
from pydantic import BaseModel
from starlette.requests import Request

from buildings.gateway import building as gateway
from campus.building import Page
from campus.layout.forms import read_form
from campus.layout.markdown import markdown_of
from campus.layout.renderer import Layout, Link
from campus.testing import ORIGIN, TestCampus, open_campus

pytestmark = pytest.mark.anyio
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"}
PAGES = ["/", "/docs/api", "/log", "/tools/harbour/find", "/tools/harbour/secret_berth", "/errors", "/errors/access_required", "/nothing"]


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
async def opened() -> AsyncIterator[TestCampus]:
    """A campus whose building has a hostile author."""
    async with open_campus(gateway=gateway, harbour=make_harbour()) as campus:
        yield campus


@pytest.fixture
def campus(opened: TestCampus) -> TestCampus:
    """The same with a browser that was never here."""
    opened.http.cookies.clear()
    return opened


def test_a_text_cannot_end_the_block_of_code_or_the_link_that_it_is_in_as_markdown() -> None:
    code = markdown_of("<main><pre><code>a\n```\n# owned\n````</code></pre><p>after</p></main>")
    assert code == "`````\na\n```\n# owned\n````\n`````\n\nafter\n"
    link = markdown_of('<main><p><a href="https://x.example/a b) [owned](https://evil.example">page</a></p></main>')
    assert link == "[page](https://x.example/a%20b%29%20[owned]%28https://evil.example)\n"


MEDIA_TYPES = {
    BROWSER["Accept"]: "text/html; charset=utf-8",
    "text/html": "text/html; charset=utf-8",
    "text/markdown, text/html, */*": "text/markdown; charset=utf-8",
    "text/html;q=0.3, text/markdown;q=0.9": "text/markdown; charset=utf-8",
    "*/*": "application/json",
    "application/json": "application/json",
    "": "application/json",
    "text/html;q=0, */*": "application/json",
    "image/png": "application/json",
    f"text/html;q=x,{'a' * 5000}": "application/json",
}


async def test_one_address_is_html_markdown_or_json_as_the_caller_accepts(campus: TestCampus) -> None:
    for accept, media_type in MEDIA_TYPES.items():
        for path in ("/", "/docs/api", "/tools/harbour/find", "/log"):
            answer = await campus.http.get(path, headers={"Accept": accept})
            assert (answer.status_code, answer.headers["content-type"]) == (200, media_type), (accept[:90], path)
            assert "accept" in answer.headers["vary"].lower()
            if media_type == "application/json":
                assert answer.json()
            if "markdown" in media_type:
                assert re.search(r"^# ", answer.text, re.MULTILINE)
                assert "<" not in re.sub(r"\\<|```.*?```|`[^`]*`", "", answer.text, flags=re.DOTALL)


async def test_a_hostile_text_is_only_text_and_no_page_has_inline_script_or_style(campus: TestCampus) -> None:
    for path in PAGES:
        page = await campus.http.get(path, headers=BROWSER)
        assert page.headers["content-type"] == "text/html; charset=utf-8", path
        assert harm_in(page.text) == [], path
        policy = dict(part.strip().partition(" ")[::2] for part in page.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'", path
        assert policy["script-src"] == policy["style-src"] == policy["form-action"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert page.headers["referrer-policy"] == "same-origin"
        assert page.headers["x-content-type-options"] == "nosniff"


def test_the_check_of_hostile_texts_finds_what_an_unescaped_page_would_have() -> None:
    assert len(harm_in(f"<main>{ALL_AT_ONCE}</main>")) >= 4


async def test_what_is_refused_is_a_page_for_a_browser_and_a_problem_for_the_rest_with_one_status(campus: TestCampus) -> None:
    for path in ("/nothing", "/tools/harbour/nothing", "/tools/nothing/find", "/errors/nothing", "/paid"):
        page, problem = await campus.http.get(path, headers=BROWSER), await campus.http.get(path)
        assert problem.headers["content-type"] == "application/problem+json", path
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.status_code == problem.status_code == problem.json()["status"] == (402 if path == "/paid" else 404), path
        assert problem.json()["code"] in page.text


REFUSED = [
    ("GET", "/v1/harbour/secret_berth", 402, 'href="/keys?next=/tools/harbour/secret_berth"'),
    ("GET", "/v1/harbour/secret_berth?x=<script>", 402, '<a href="/pricing#harbour">Harbour</a>'),
    ("GET", "/v1/harbour/find", 422, 'href="/tools/harbour/find"'),
    ("GET", "/v1/harbour/find?ship=%3Cscript%3E&%3Cscript%3E=1", 422, "&lt;script&gt;"),
    ("PUT", "/v1/harbour/find", 405, 'href="/tools/harbour/find"'),
    ("GET", "/harbour/mcp", 405, "MCP client"),
    ("GET", "/v1/harbour/nothing/at/all", 404, 'href="/docs/api"'),
    ("POST", "/v1/harbour/moor", 413, "That is too large"),
    ("GET", "/sink", 500, "report it to the operator"),
]


async def test_what_a_tool_or_the_edge_refuses_is_a_page_that_says_what_to_do_and_unchanged_for_programs(campus: TestCampus) -> None:
    for method, path, status, says in REFUSED:
        content = b"x" * 1_048_577 if status == 413 else None
        page, problem, listed = [
            await campus.http.request(method, path, headers={"Accept": accept, "X-Request-Id": "quoted"}, content=content)
            for accept in (BROWSER["Accept"], "*/*", "application/json, text/html;q=0.9")
        ]
        assert page.status_code == problem.status_code == problem.json()["status"] == status, path
        assert (listed.content, listed.headers["content-type"]) == (problem.content, "application/problem+json"), path
        assert page.headers["content-type"] == "text/html; charset=utf-8", path
        assert (page.headers["cache-control"], "accept" in page.headers["vary"].lower()) == ("no-store", True), path
        assert "style-src 'self'" in page.headers["content-security-policy"]
        assert "style-src" not in problem.headers["content-security-policy"]
        for name in ("allow", "www-authenticate", "retry-after", "x-request-id"):
            assert page.headers.get(name) == problem.headers.get(name), (path, name)
        assert harm_in(page.text) == [], path
        for text in (says, problem.json()["code"], "quoted"):
            assert text in page.text, (path, text)
        assert "secret-of-the-sinking" not in page.text


async def test_a_form_is_accepted_only_with_the_token_of_the_same_browser(campus: TestCampus) -> None:
    page = await campus.http.get("/log", headers=BROWSER)
    cookie = page.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    token = token_in(page.text)
    assert (await campus.http.post("/log", data={"form_token": token})).text == "logged"

    async def refused(**options: object) -> None:
        answer = await campus.http.post("/log", **options)  # type: ignore[arg-type]
        assert (answer.status_code, answer.json()["code"]) == (403, "form_expired"), options

    await refused()
    await refused(data={"name": "x"})
    await refused(data={"form_token": token[:-1]})
    await refused(json={"form_token": token})
    await refused(data={"form_token": token}, headers={"Sec-Fetch-Site": "cross-site"})
    await refused(data={"form_token": token}, headers={"Sec-Fetch-Site": "same-site"})
    campus.http.cookies.clear()
    await refused(data={"form_token": token})
    other = await campus.http.get("/log", headers=BROWSER)
    assert token_in(other.text) != token
    await refused(data={"form_token": token})
    assert (await campus.http.post("/hook")).text == "hooked"


async def test_a_form_that_no_browser_sends_is_refused_with_or_without_a_token(campus: TestCampus) -> None:
    token = token_in((await campus.http.get("/log", headers=BROWSER)).text)
    bodies = ["&".join("abcdef"[n % 6] for n in range(201)), "&" * 1_000_000, "said=50%", "said=%zz", "%4=x", "said=%00", "%00=x"]
    for body in bodies:
        for sent in (body, f"form_token={token}&{body}"):
            answer = await campus.http.post("/log", content=sent, headers={"Content-Type": "application/x-www-form-urlencoded"})
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), sent[:90]


def test_a_form_is_decoded_as_browsers_encode_it() -> None:
    for text in ("ä € \U0001f600 + & = % %41 \\x41 \\ \r\n\t\"'<>", "\\N{DEGREE SIGN}\\u0041%5c", "%2541", " "):
        for encode in (quote_plus, quote):
            assert read_form(f"{encode(text)}={encode(text)}&b&&b=2".encode()) == {text: text, "b": "2"}
    assert read_form(b"a=%ff%E2%82") == {"a": "\ufffd\ufffd"}


async def test_no_cache_keeps_a_page_with_a_form_or_about_its_visitor(campus: TestCampus) -> None:
    for path in ("/log", "/tools/harbour/find"):
        for accept in ("text/html", "application/json"):
            answer = await campus.http.get(path, headers={"Accept": accept})
            if path == "/log" or accept == "text/html":
                assert answer.headers["cache-control"] == "private, no-store", (path, accept)
    assert (await campus.http.get("/", headers=BROWSER)).headers["cache-control"] == "no-cache"
    assert "set-cookie" not in (await campus.http.get("/", headers=BROWSER)).headers


async def test_a_page_knows_its_visitor_by_the_key_of_the_building_and_of_no_other(campus: TestCampus) -> None:
    for product, known in (("harbour", "harbour"), ("all", "all"), ("gateway", None)):
        headers = {"Authorization": f"Bearer {await campus.key(product)}"}
        assert (await campus.http.get("/log", headers=headers)).json() == {"key": known}
        paid = await campus.http.get("/paid", headers=headers)
        assert (paid.status_code == 200) == (known is not None)
        assert ("paid-for-and-delivered" in paid.text) == (known is not None)


async def test_a_page_that_is_kept_is_rendered_anew_when_a_building_joins_the_navigation(campus: TestCampus) -> None:
    class Explained(BaseModel, frozen=True):
        code: str = "x"
        explanation: str = "y"

    kept, explained = campus.service.layout.kept, Explained()
    layout = Layout("campus", "http://campus.test", kept, navigation=[Link("/a", "Early")])
    request = Request({"type": "http", "method": "GET", "path": "/errors/x", "query_string": b"", "headers": [(b"accept", b"text/html")]})
    early = layout.own.page("explanation.html", request, explained=explained).body
    layout.navigation = [Link("/a", "Early"), Link("/b", "Late")]
    assert (b"Late" in early, b"Late" in layout.own.page("explanation.html", request, explained=explained).body) == (False, True)


async def test_a_static_file_may_be_kept_for_ever_because_its_address_changes_with_it(campus: TestCampus) -> None:
    page = (await campus.http.get("/", headers=BROWSER)).text
    paths = re.findall(r'"(/static/[^"]+)"', page)
    assert len(set(paths)) == 3
    for path in paths:
        answer = await campus.http.get(path)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert re.search(r"\.[0-9a-f]{12}\.(css|js|svg)$", path)
        assert (answer.headers["content-encoding"], int(answer.headers["content-length"]) < len(answer.content)) == ("gzip", True)
        plain = await campus.http.head(path, headers={"Accept-Encoding": "gzip;q=0"})
        assert (plain.headers["content-length"], "content-encoding" in plain.headers) == (str(len(answer.content)), False)
    assert len((await campus.http.get(next(path for path in paths if path.endswith(".js")))).content) < 10_000
    assert (await campus.http.get("/static/../layout.html")).status_code == 404


async def test_the_start_page_shows_highlights_and_prices_and_leads_agents_to_a_command_that_works(campus: TestCampus) -> None:
    page = (await campus.http.get("/", headers=BROWSER)).text
    assert '<h2 id="said">Highlight</h2>' in page
    agents = (await campus.http.get("/connect", headers=BROWSER)).text
    assert "curl -s http://campus.test/v1/gateway/list_buildings" in agents
    assert ('href="/connect"' in page, 'href="/docs"' in agents, 'href="/docs/api"' in agents) == (True, True, True)
    assert "$19" in page
    assert (await campus.http.get("/")).json() == (await campus.http.get("/v1/gateway/list_buildings")).json()


async def test_the_start_page_says_what_the_operator_says_and_has_a_card_of_a_building_whose_highlight_fails(tmp_path: Path) -> None:
    async def failing(request: object, site: object) -> str:
        raise RuntimeError("secret-of-the-crash")

    (logo := tmp_path / "anchor.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    server = {"public_url": ORIGIN, "openapi": "harbour", "name": "Port", "title": "Berths <now>", "tagline": 'A "berth" & <more>.'}
    harbour = replace(make_harbour(), highlight=failing)
    async with open_campus(gateway=gateway, harbour=harbour, tables={"server": server | {"logo": str(logo)}}) as campus:
        page = (await campus.http.get("/", headers=BROWSER)).text
        assert "secret-of-the-crash" not in page
        assert "<title>Berths &lt;now&gt; · Port</title>" in page
        assert '<meta name="description" content="A &#34;berth&#34; &amp; &lt;more&gt;.">' in page
        assert ('href="/docs/api#harbour"' in page, 'href="/docs/api#gateway"' in page) == (True, False)
        (address,) = re.findall(r'<img src="(/static/anchor[^"]+)" alt=""', page)
        assert (await campus.http.get(address)).headers["content-type"] == "image/svg+xml"
        for path in ("/docs", "/docs/api", "/connect", "/keys", "/tools/harbour/find"):
            text = (await campus.http.get(path, headers=BROWSER)).text
            assert '<meta name="description" content="' in text
            assert '<meta property="og:title" content="' in text


async def test_without_a_start_page_of_a_building_a_browser_is_led_to_the_tools_and_with_https_cookies_are_bound_to_the_host() -> None:
    async def one(request: object, site: object) -> object:
        raise AssertionError

    made = make_harbour()
    shown = replace(made, pages=[*made.pages, Page("GET /harbour/{berth}", one)])  # type: ignore[arg-type]
    server = {"server": {"public_url": "https://campus.test", "openapi": "harbour"}}
    async with open_campus(harbour=shown, tables=server) as campus:
        led = await campus.http.get("/", headers=BROWSER)
        assert (led.status_code, led.headers["location"]) == (303, "/docs/api")
        assert (await campus.http.get("/")).status_code == 404
        cookie = (await campus.http.get("/log", headers=BROWSER)).headers["set-cookie"]
        assert (cookie.startswith("__Host-campus_form="), "Secure" in cookie, "Domain" in cookie) == (True, True, False)
        assert (await campus.http.get("/harbour/openapi.json")).json()["openapi"] == "3.0.3", "a page's pattern hides no document"
        async with campus.mcp() as client:
            assert [tool.name for tool in await client.list_tools()] == ["find", "secret_berth", "moor"], "nor an endpoint"


async def test_an_address_with_a_slash_at_its_end_or_cut_at_its_end_leads_to_the_page(campus: TestCampus) -> None:
    for path, target in {"/log/?x=1": "/log?x=1", "/docs/api/": "/docs/api", "/harbour/mcp/": "/harbour/mcp"}.items():
        answer = await campus.http.get(path, headers=BROWSER)
        assert (answer.status_code, answer.headers["location"]) == (307, target)
    for path in ("/tools", "/tools/harbour"):
        answer = await campus.http.get(path, headers=BROWSER)
        assert (answer.status_code, answer.headers["location"]) == (303, "/docs/api")
    assert (await campus.http.get("//docs/api/", headers=BROWSER)).status_code == 404
    refused = await campus.http.get("/v1/gateway/list_buildings/")
    assert (refused.status_code, "leave out the slash" in refused.json()["detail"]) == (404, True)
