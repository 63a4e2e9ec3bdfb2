"""The answers to forms: each is kept for the browser that sent the form, and shown to it and to nobody else; a form does its work once."""

import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import anyio
import httpx
import pytest
from forms import HTML, sent, shown, token_in
from pages.harbour import make_harbour
from pages.hostile import HOSTILE, harm_in
from sqlmodel import select

from buildings.cve.building import building as cve
from buildings.gateway import building as gateway
from buildings.recorder import building as recorder
from campus import Page, Problem, Request, Response, Site
from campus.features.operator.routes import operators_pages
from campus.keys.tables import KeptRow
from campus.layout.kept import LARGEST, OF_ONE_BROWSER, OF_ONE_HOLDER, OF_STRANGERS, RETENTION, Kept
from campus.testing import Clock, TestCampus, open_campus
from tests import patient

pytestmark = pytest.mark.anyio
URL = "https://campus.test"
FORM, SESSION = "__Host-campus_form", "__Host-campus_session"
PASSWORD = "harbour-master-7"


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
async def opened(clock: Clock) -> AsyncIterator[TestCampus]:
    made: list[str] = []

    async def note(request: Request, site: Site[Any, Any]) -> Response:
        """An author's page, which does nothing about where its answer is shown."""
        name = str((await request.form()).get("name", ""))
        if request.method == "GET":
            return site.page("log.html", request, said="a form", key=None)
        if not name:
            raise Problem(422, "invalid_request", "name is missing")
        made.append(name)
        return site.page("log.html", request, said=f"secret-{len(made)}-of-{name}", key=None)

    async def raw(request: Request, site: Site[Any, Any]) -> Response:
        return Response('<form method="post" action=""><button>Again</button></form>', media_type="text/html")

    async def repeated(request: Request, site: Site[Any, Any]) -> Response:
        return await note(request, site)

    harbour = make_harbour()
    pages = [*harbour.pages, Page("GET|POST /note", note), Page("POST /raw/{berth}", raw), Page("POST /repeated", repeated, repeats=True)]
    tables: dict[str, Any] = {"server": {"public_url": URL, "openapi": "harbour"}, "connect": {}}
    tables |= {"web": {"allowed_hosts": ["127.0.0.1"]}, "limits": {"free": "off", "keyed": "off", "unpaid": "off"}}
    secrets_set = {"CAMPUS_OPERATOR_PASSWORD": PASSWORD}
    buildings = {"harbour": replace(harbour, pages=pages), "gateway": gateway, "recorder": recorder, "cve": cve}
    async with (
        open_campus(**buildings, clock=clock, secrets=secrets_set, tables=tables) as campus,
        patient.AsyncClient(transport=httpx.ASGITransport(campus.app), base_url=URL) as http,
    ):
        yield replace(campus, http=http)


@pytest.fixture
def campus(opened: TestCampus) -> TestCampus:
    opened.http.cookies.clear()
    return opened


async def sign_in(campus: TestCampus) -> None:
    assert (await sent(campus.http, "/keys", page="/keys", key=await campus.key("all"))).headers["location"] == "/keys"


def posted(entries: Any) -> list[str]:
    """The paths of all pages that a form may be sent to."""
    return sorted({one.path for one in entries if "POST" in one.methods and " page " in one.name})


async def test_no_page_answers_a_form_where_it_was_sent(campus: TestCampus) -> None:
    table: Any = campus.app
    paths = posted(table._app._table.entries)
    some = {"/note", "/recorder", "/recorder/{monitor_id}/{action}", "/cve/report", "/cve/watches", "/keys", "/connect/consent"}
    assert some <= set(paths)
    _, entries = operators_pages(campus.service, PASSWORD)
    async with campus.admin() as admin:
        assert (await sent(admin, "/sign-in", page="/sign-in", password=PASSWORD)).status_code == 303
        for http, found, page in ((campus.http, paths, "/note"), (admin, posted(entries), "/keys")):
            fields = {"name": "x", "product": "all", "report": "CVE-2021-44228", "key": "x"}
            fields["form_token"] = token_in((await http.get(page, headers=HTML)).text)
            for path in sorted(found, key=lambda path: "sign" in path):
                at = re.sub(r"\{tool\}", "find", re.sub(r"\{building\}", "harbour", path))
                answer = await http.post(re.sub(r"\{\w+\}", "x", at), data=fields, headers=HTML)
                is_page = answer.headers.get("content-type", "").startswith("text/html")
                assert not is_page, (path, answer.text)
                assert path not in some or answer.status_code == 303, (path, answer.text)
                assert path not in some or answer.headers["cache-control"].startswith("private, no-store"), path


async def test_an_answer_is_shown_again_to_its_browser_and_to_no_other(campus: TestCampus) -> None:
    answer = await sent(campus.http, "/note", name="boat")
    address = answer.headers["location"]
    page = await campus.http.get(address, headers=HTML)
    assert ("-of-boat" in page.text, page.status_code, page.headers["cache-control"]) == (True, 200, "private, no-store")
    assert (await campus.http.get(address, headers=HTML)).text.partition("form_token")[0] == page.text.partition("form_token")[0]
    assert "form-action 'self'" in page.headers["content-security-policy"]
    async with patient.AsyncClient(transport=httpx.ASGITransport(campus.app), base_url=URL, headers=HTML) as other:
        refusals = [await other.get(address)]
        await sent(other, "/note", name="other")  # with a secret of its own
        refusals.append(await other.get(address))
        other.cookies.set(FORM, "x" * 32)  # and with a chosen one
        other.cookies.set(SESSION, "y" * 32)
        refusals.append(await other.get(address))
        refusals += [await other.get(f"/answers/{name}") for name in (secrets.token_urlsafe(24), "%00", "a" * 5000)]
        assert (await other.get("/answers/..%2f..%2fkeys")).status_code == 404
        for refused in refusals:
            assert (refused.status_code, "to no other browser" in refused.text) == (404, True)
            assert refused.headers.get("set-cookie") is None
        assert len({re.sub(r'<code>\w+</code>|/answers/[^"]*', "", one.text.partition("<main")[2]) for one in refusals}) == 1, (
            "nobody learns whether it exists"
        )
    async with campus.service.core.storage.read() as session:
        rows = (await session.exec(select(KeptRow))).all()
    assert rows
    assert not [row for row in rows if b"boat" in row.sealed or campus.http.cookies[FORM] in repr(row)]


async def test_a_form_does_its_work_once_and_with_other_values_it_is_another(campus: TestCampus) -> None:
    token = token_in((await campus.http.get("/note", headers=HTML)).text)
    answers: list[httpx.Response] = []

    async def press(name: str) -> None:
        answers.append(await campus.http.post("/note", data={"form_token": token, "name": name}, headers=HTML))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(press, "twice")
        tasks.start_soon(press, "twice")
    await press("twice")
    await press("changed")
    pages = [(await shown(campus.http, answer, HTML)).text for answer in answers]
    assert len({re.findall(r"secret-\d+-of-twice", page)[0] for page in pages[:3]}) == 1
    assert "-of-changed" in pages[3]
    moor = await sent(campus.http, "/tools/harbour/moor", page="/tools/harbour/find", **{"argument.ship": "x"})
    assert (moor.status_code, (await shown(campus.http, moor, HTML)).status_code) == (303, 402), "what needs a key is refused as before"


async def test_a_form_whose_answer_is_not_there_says_so_and_does_nothing(campus: TestCampus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campus.layout.answers.WAIT_SECONDS", 0.0)
    fields = {"form_token": token_in((await campus.http.get("/note", headers=HTML)).text), "name": "lost"}
    answer = await campus.http.post("/note", data=fields, headers=HTML)
    async with campus.service.core.storage.write() as session:  # as if its process had ended before it was kept
        await session.delete(await session.get_one(KeptRow, answer.headers["location"].rpartition("/")[2]))
    again = await campus.http.post("/note", data=fields, headers=HTML)
    assert (again.status_code, "nothing was done again" in again.text, "Send it again" in again.text) == (409, True, False)


async def test_what_a_visitor_was_shown_ends_with_signing_out_and_what_came_before_signing_in_stays(campus: TestCampus) -> None:
    before = (await sent(campus.http, "/note", name="free")).headers["location"]
    await sign_in(campus)
    assert "-of-free" in (await campus.http.get(before, headers=HTML)).text
    during = (await sent(campus.http, "/note", name="keyed")).headers["location"]
    assert "-of-keyed" in (await campus.http.get(during, headers=HTML)).text
    session = campus.http.cookies[SESSION]
    assert (await sent(campus.http, "/keys/sign-out", page="/keys")).status_code == 303
    assert [(await campus.http.get(at, headers=HTML)).status_code for at in (before, during)] == [200, 404]
    campus.http.cookies.set(SESSION, session)  # who copied the cookie
    assert (await campus.http.get(during, headers=HTML)).status_code == 404


async def test_a_form_that_another_tab_made_stale_shows_what_was_typed_and_is_sent_from_there(campus: TestCampus) -> None:
    token = token_in((await campus.http.get("/note", headers=HTML)).text)
    await sign_in(campus)
    typed = {"name": "\n".join(HOSTILE), "key": "campus_live_secret", "<b>": "y"}
    stale = await campus.http.post("/note", data={"form_token": token, **typed}, headers=HTML)
    page = await campus.http.get(stale.headers["location"], headers=HTML)
    assert (page.status_code, harm_in(page.text), "campus_live_secret" in page.text) == (403, [], False)
    assert "Please send this again" in page.text
    again = await campus.http.post("/note", data={"form_token": token_in(page.text), "name": "kept"}, headers=HTML)
    assert "-of-kept" in (await shown(campus.http, again, HTML)).text
    for site in ("cross-site", "same-site", "none"):
        refused = await campus.http.post("/note", data={"form_token": token, **typed}, headers=HTML | {"Sec-Fetch-Site": site})
        assert (refused.status_code, "form_token" in refused.text) == (403, False)
    signed_in = token_in((await campus.http.get("/note", headers=HTML)).text)
    campus.http.cookies.clear()  # another tab signed out, or the cookies have expired
    stale = await campus.http.post("/note", data={"form_token": signed_in, "name": "half"}, headers=HTML)
    page = await campus.http.get(stale.headers["location"], headers=HTML)
    assert ('value="half"' in page.text, f"/keys?next={stale.headers['location']}" in page.text) == (True, True)
    await sign_in(campus)
    page = await campus.http.get(stale.headers["location"], headers=HTML)
    again = await campus.http.post("/note", data={"form_token": token_in(page.text), "name": "half"}, headers=HTML)
    assert "-of-half" in (await shown(campus.http, again, HTML)).text
    huge = await campus.http.post("/note", data={"form_token": token, "name": "x" * 70_000}, headers=HTML)
    assert "too long to be shown again" in (await shown(campus.http, huge, HTML)).text


async def test_a_refusal_that_an_author_only_raises_has_what_was_typed_and_programs_get_answers_as_ever(campus: TestCampus) -> None:
    refused = await sent(campus.http, "/note", text="what was typed")
    page = await shown(campus.http, refused, HTML)
    assert (page.status_code, "Name is missing" in page.text, 'value="what was typed"' in page.text) == (422, True, True)
    token = token_in((await campus.http.get("/note", headers=HTML)).text)
    program = await campus.http.post("/note", data={"form_token": token}, headers={"Accept": "application/json"})
    assert (program.status_code, program.json()["code"]) == (422, "invalid_request")
    plain = await sent(campus.http, "/log", page="/note")
    assert (plain.status_code, plain.text) == (200, "logged")
    raw = await shown(campus.http, await sent(campus.http, "/raw/berth", page="/note"), HTML)
    assert '<form method="post" action="/raw/berth">' in raw.text
    times = [await shown(campus.http, await sent(campus.http, "/repeated", page="/note", name="again"), HTML) for _ in range(2)]
    assert len({re.findall(r"secret-\d+", one.text)[0] for one in times}) == 2


async def test_an_answer_ends_after_an_hour_and_a_clock_that_is_set_back_brings_none_back(campus: TestCampus, clock: Clock) -> None:
    address = (await sent(campus.http, "/note", name="hour")).headers["location"]
    for step, status in ((timedelta(minutes=59), 200), (-timedelta(hours=2), 404), (timedelta(hours=2, minutes=2), 404)):
        clock.step(step)
        assert (await campus.http.get(address, headers=HTML)).status_code == status
    await sent(campus.http, "/note", name="later")
    async with campus.service.core.storage.read() as session:
        assert await session.get(KeptRow, address.rpartition("/")[2]) is None


@pytest.mark.both_databases
async def test_strangers_fill_what_they_may_have_and_end_nothing_of_a_keys_holder(storage_url: str) -> None:
    clock = Clock()
    async with open_campus(gateway=gateway, storage=storage_url) as campus:
        kept = Kept(campus.service.core.storage, now=clock)
        mine, theirs, most = secrets.token_urlsafe(24), secrets.token_urlsafe(24), secrets.token_bytes(LARGEST - 100)
        assert await kept.keep("of a key", b"mine", secret=mine, holder="lin_1")
        assert not await kept.keep("too large", most + b"x" * 100, secret=mine, holder="lin_1")
        for number in range(90):
            clock.move(timedelta(seconds=1))
            holder = f"net:192.0.2.{number // 10}"
            assert await kept.keep(f"{number}", most, secret=theirs if number < 10 else f"{number}" * 16, holder=holder)
        async with campus.service.core.storage.read() as session:
            rows = (await session.exec(select(KeptRow))).all()
        sums: dict[str, int] = {}
        for row in rows:
            sums[row.holder] = sums.get(row.holder, 0) + row.size
        assert OF_STRANGERS * 0.9 < sum(sums.values()) - sums["lin_1"] <= OF_STRANGERS
        assert max(sums.values()) <= OF_ONE_HOLDER
        assert len([row for row in rows if row.holder == "net:192.0.2.0"]) * LARGEST <= OF_ONE_BROWSER
        assert await kept.find("of a key", [theirs, mine]) == b"mine"
        assert (await kept.find("89", [mine]), await kept.find("89", ["89" * 16])) == (None, most)
        clock.move(RETENTION)
        await kept.keep("later", b"", secret=mine, holder="lin_1")
        async with campus.service.core.storage.read() as session:
            assert [row.name for row in await session.exec(select(KeptRow))] == ["later"]
