"""Signing in with a key: the session is a random id in a cookie, and it ends with its key."""

import logging
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import anyio
import httpx
import pytest
from forms import HTML, shown
from forms import sent as sent_to
from pages.harbour import make_harbour
from patience import patience
from sqlmodel import select

from campus import Site
from campus.caller import Key
from campus.keys.tables import SessionRow
from campus.testing import Clock, TestCampus, open_campus

pytestmark = pytest.mark.anyio
SESSION = "campus_session"


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
async def opened(clock: Clock) -> AsyncIterator[TestCampus]:
    """Of its buildings, the harbour cannot say what a key uses."""

    async def failing(site: Site[Any, Any], key: Key) -> str:
        raise ConnectionResetError("the building's own server hung up")

    async def used(site: Site[Any, Any], key: Key) -> str:
        return "3 of 20 berths"

    quay = replace(make_harbour("The quay"), usage=used, pages=())
    terms = {"price": "29", "term": "30 days"}
    products = {"harbour": {"scope": "harbour", **terms}, "all": {"scope": "all", "url": "mailto:sales@shop.example", **terms}}
    products["one-call"] = {"scope": "harbour", "credits": "0.02", **terms}
    async with open_campus(harbour=replace(make_harbour(), usage=failing), quay=quay, clock=clock, tables={"products": products}) as campus:
        yield campus


@pytest.fixture
def campus(opened: TestCampus, clock: Clock) -> TestCampus:
    """With a browser that was never here, and after what limits attempts to sign in."""
    clock.move(timedelta(hours=1))
    opened.http.cookies.clear()
    return opened


async def sent(campus: TestCampus, path: str, *, page: str | None = None, **fields: str) -> httpx.Response:
    return await shown(campus.http, await sent_to(campus.http, path, page=page, **fields), HTML)


async def signed_in(campus: TestCampus, product: str = "harbour", **fields: str) -> str:
    key = await campus.key(product)
    answer = await sent(campus, "/keys", key=key, **fields)
    assert answer.status_code == 303, answer.text
    return key


async def is_signed_in(campus: TestCampus) -> bool:
    answer = await campus.http.get("/keys", headers={"Accept": "application/json"})
    return bool(answer.json()["signed_in"])


async def test_the_page_of_a_key_says_what_it_uses_leaving_out_a_building_that_cannot_and_how_it_is_renewed(
    campus: TestCampus, clock: Clock
) -> None:
    await signed_in(campus, "all")
    page = await campus.http.get("/keys", headers=HTML)
    assert (page.status_code, "Valid until" in page.text) == (200, True)
    assert re.findall(r"<dt>([^<]+)</dt><dd>3 of 20 berths</dd>", page.text) == ["The quay"]
    assert 'href="/pricing/all?renew"' in page.text
    assert 'href="mailto:sales@shop.example"' in (await campus.http.get("/pricing", headers=HTML)).text
    clock.move(timedelta(seconds=1))
    assert " 30 days left</p>" in (await campus.http.get("/keys", headers=HTML)).text


@pytest.mark.both_databases
async def test_a_signed_in_browser_calls_paid_tools_until_it_signs_out_and_its_cookie_and_row_hold_no_key(
    storage_url: str,
) -> None:
    async with open_campus(harbour=make_harbour(), storage=storage_url) as campus:
        key = await campus.key("harbour")
        answer = await sent(campus, "/keys", key=key)
        cookie = next(value for value in answer.headers.get_list("set-cookie") if value.startswith(SESSION))
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert key not in str(answer.headers)
        session_id = campus.http.cookies[SESSION]
        async with campus.service.core.storage.read() as session:
            (row,) = (await session.exec(select(SessionRow))).all()
        assert session_id not in repr(row)
        assert row.lineage == (await campus.service.keys.list())[0].key.lineage
        page = await campus.http.get("/keys", headers=HTML)
        assert ("Valid until" in page.text, key in page.text) == (True, False)
        assert page.headers["cache-control"] == "private, no-store"
        called = await sent(campus, "/tools/harbour/secret_berth")
        assert (called.status_code, "paid-for-and-delivered" in called.text) == (200, True)
        assert (await campus.http.get("/paid", headers=HTML)).status_code == 200
        assert (await campus.http.get("/v1/harbour/secret_berth")).status_code == 402  # the cookie opens pages, never the API
        assert (await sent(campus, "/keys/sign-out", page="/keys")).status_code == 303
        assert SESSION not in campus.http.cookies
        campus.http.cookies.set(SESSION, session_id)
        assert not await is_signed_in(campus)
        assert (await campus.http.get("/paid", headers=HTML)).status_code == 402
        campus.http.cookies.clear()
        async with campus.service.core.storage.write():
            with anyio.fail_after(patience(20)):  # who signs out of no session waits for no writer
                assert (await sent(campus, "/keys/sign-out", page="/keys")).status_code == 303


async def test_a_key_that_is_used_up_leads_to_its_renewal_from_its_page_and_from_that_of_the_tool(campus: TestCampus) -> None:
    await signed_in(campus, "one-call")
    called = [await sent(campus, "/tools/harbour/secret_berth") for _ in range(2)]
    assert [one.status_code for one in called] == [200, 402]
    assert '<a class="button" href="/keys#renew">Renew your key</a>' in called[1].text
    page = (await campus.http.get("/keys", headers=HTML)).text
    assert "no calls left" in page
    assert '<a class="button" href="/pricing/one-call?renew">Renew it</a>' in page


async def test_the_id_of_a_session_is_always_new_and_signing_in_again_ends_the_one_before(campus: TestCampus) -> None:
    planted = "p" * 32
    campus.http.cookies.set(SESSION, planted)
    await signed_in(campus)
    (first,) = {cookie.value for cookie in campus.http.cookies.jar if cookie.name == SESSION} - {planted}
    campus.http.cookies.clear()
    campus.http.cookies.set(SESSION, str(first))
    assert await is_signed_in(campus)
    await signed_in(campus, "all")
    for ended in (planted, str(first)):
        campus.http.cookies.clear()
        campus.http.cookies.set(SESSION, ended)
        assert not await is_signed_in(campus)


async def test_a_session_ends_with_its_key_and_a_renewal_keeps_it(campus: TestCampus, clock: Clock) -> None:
    async def id_of(token: str) -> str:
        key = (await campus.service.keys.tokens.find(token)).key
        assert key is not None
        return key.id

    key_id = await id_of(await signed_in(campus))
    clock.move(timedelta(days=6))
    assert await is_signed_in(campus)
    await campus.service.keys.rotate(key_id)
    clock.move(timedelta(hours=23))
    assert await is_signed_in(campus)
    clock.move(timedelta(hours=2))
    assert not await is_signed_in(campus)
    await signed_in(campus)
    clock.move(timedelta(days=7))
    assert not await is_signed_in(campus)
    key_id = await id_of(await signed_in(campus))
    assert await is_signed_in(campus)
    await campus.service.keys.revoke(key_id)
    assert not await is_signed_in(campus)
    assert "This key was revoked." in (await campus.http.get("/keys", headers=HTML)).text


async def test_after_signing_in_a_browser_goes_on_to_a_page_of_this_service_only(campus: TestCampus) -> None:
    own, key = "/tools/harbour/secret_berth", await campus.key("harbour")
    for path in (own, "//evil.example", "https://evil.example", "/\\evil.example", "/x/../../keys", "/x?y=//z"):
        assert (await sent(campus, "/keys", key=key, next=path)).headers["location"] == (path if path == own else "/keys"), path


async def test_an_expired_key_opens_nothing_and_its_holder_is_offered_the_renewal_first(campus: TestCampus, clock: Clock) -> None:
    key = await signed_in(campus)
    clock.move(timedelta(days=31))
    answer = await sent(campus, "/keys", key=key, next="/paid")
    assert (answer.status_code, answer.headers["location"]) == (303, "/keys")
    page = (await campus.http.get("/keys", headers=HTML)).text
    assert "<h1>Your key has expired</h1>" in page
    first = re.search(r'<a class="button" href="([^"]+)">([^<]+)</a>', page)
    assert first is not None
    assert (first[1], first[2].startswith("Renew it: $")) == ("/pricing/harbour?renew", True)
    renewal = await campus.http.get(first[1], headers=HTML)
    assert (renewal.status_code, "which stays as it is" in renewal.text) == (200, True)
    locked = await campus.http.get("/paid", headers=HTML)
    assert (locked.status_code, await is_signed_in(campus)) == (402, False)
    actions = re.findall(r'<a class="(button[^"]*)" href="([^"]+)">', locked.text.partition("<main")[2])
    assert actions[:2] == [("button", "/keys#renew"), ("button plain", "/pricing/harbour")], "renewing first, then another key"


async def test_a_wrong_key_is_refused_without_being_repeated_and_attempts_are_limited(
    campus: TestCampus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "campus_live_0123456789abcdefghijABCDEFGHIJ012345678"
    for _ in range(10):
        answer = await sent(campus, "/keys", key=wrong)
        assert (answer.status_code, "This key is unknown" in answer.text) == (403, True)
        assert wrong not in answer.text
        assert SESSION not in campus.http.cookies
    limited = await sent(campus, "/keys", key=wrong)
    assert (limited.status_code, int(limited.headers["retry-after"]) > 0) == (429, True)
    assert wrong not in caplog.text
    key = await campus.key("harbour")
    for _ in range(10):  # who tries keys shuts nobody else out at the same address
        campus.http.cookies.clear()
        assert (await sent(campus, "/keys", key=key)).status_code == 303
    campus.http.cookies.clear()
    assert (await sent(campus, "/keys", key=key)).status_code == 429


async def test_another_site_can_neither_sign_a_browser_in_nor_out_nor_read_its_pages(campus: TestCampus) -> None:
    await signed_in(campus)
    for path in ("/keys", "/keys/sign-out", "/tools/harbour/moor"):
        for headers, code in (({"Origin": "https://evil.example"}, "origin_refused"), ({"Sec-Fetch-Site": "cross-site"}, "form_expired")):
            refused = await campus.http.post(path, data={"key": "x"}, headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (403, code)
    page = await campus.http.get("/keys", headers=HTML | {"Origin": "https://evil.example"})
    assert not [name for name in page.headers if name.startswith("access-control")]  # so a browser shows it to no other site
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert await is_signed_in(campus)
