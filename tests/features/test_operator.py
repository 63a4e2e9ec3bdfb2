"""The operator's pages: nobody else is let in, no form of another site does anything, and they show what the command line shows."""

import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.lowlevel
import httpx
import pytest
from forms import shown
from pages.harbour import make_harbour
from pages.hostile import ALL_AT_ONCE, harm_in
from patience import patience
from pydantic import SecretStr
from sqlalchemy import text

from buildings.recorder import building as recorder
from campus import Building, Check, Job, Problem, Request, Site
from campus.config import config_model, read_config
from campus.errors import ConfigError, JobFailed
from campus.features.audit_log.log import last_acts
from campus.features.operator.configuration import shown_configuration
from campus.features.operator.feature import password_of
from campus.features.operator.routes import operators_pages
from campus.features.payments.tables import LedgerRow, PaymentRow
from campus.keys.sign_ins import SignInLimit
from campus.storage import Storage
from campus.testing import ORIGIN, Clock, TestCampus, open_campus

pytestmark = pytest.mark.anyio
PASSWORD = "harbour-master-7"
SECRETS = {"CAMPUS_OPERATOR_PASSWORD": PASSWORD, "CAMPUS_HARBOUR_PILOT": "environment-secret-value"}
HTML = {"Accept": "text/html"}
SESSION, FORM = "campus_operator_session", "campus_operator_form"
PAYMENTS = {
    "network": "eip155:84532",
    "pay_to": "0x1111111111111111111111111111111111111111",
    "facilitators": ["http://127.0.0.1:9/facilitator-path-secret"],
    "rpc_url": "http://127.0.0.1:9/node-path-secret",
}
PAGES = ("/", "/jobs", "/keys", "/usage", "/payments", "/alerts", "/buildings")


def hostile_harbour() -> Building:
    async def tide(site: Site[Any, Any]) -> Sequence[str]:
        return [f"the tide is out: {ALL_AT_ONCE}"]

    async def dredge(site: Site[Any, Any]) -> None:
        raise JobFailed(f"mud: {ALL_AT_ONCE}")

    async def sweep(site: Site[Any, Any]) -> None:
        site.count("sweeps")

    async def facts(site: Site[Any, Any]) -> Mapping[str, str]:
        return {"depth": f"9 m {ALL_AT_ONCE}"}

    return replace(make_harbour(), checks=[Check(tide, on="ready")], jobs=[Job(dredge), Job(sweep)], facts=facts)


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
async def campus(clock: Clock) -> AsyncIterator[TestCampus]:
    """One for all tests, since it takes as long to open as they take; each signs in anew."""
    tables = {"payments": PAYMENTS}
    async with open_campus(harbour=hostile_harbour(), recorder=recorder, clock=clock, secrets=SECRETS, tables=tables) as opened:
        yield opened


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def stored(request: pytest.FixtureRequest) -> AsyncIterator[TestCampus]:
    """A campus without payments, on each database."""
    url = None if request.param == "sqlite" else (server := request.getfixturevalue("postgres")).url(server.create_database())
    tables = {"audit_log": {}, "products": {name: {"scope": "all", "price": "5", "term": "7 days"} for name in ("harbour", "week")}}
    async with open_campus(harbour=hostile_harbour(), secrets=SECRETS, tables=tables, storage=url) as opened:
        yield opened


@pytest.fixture
async def admin(campus: TestCampus) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that was never here."""
    async with campus.admin() as client:
        client.headers.update(HTML)
        yield client


@pytest.fixture(scope="module")
def session() -> httpx.Cookies:
    """The cookies of a browser that is signed in, once one is: a password takes 50 ms."""
    return httpx.Cookies()


@pytest.fixture
async def operator(admin: httpx.AsyncClient, session: httpx.Cookies) -> httpx.AsyncClient:
    """A browser in which the operator is signed in."""
    admin.cookies.update(session)
    if not await is_signed_in(admin):
        await sign_in(admin)
        session.update(admin.cookies)
    return admin


def token_in(page: httpx.Response) -> str:
    found = re.search(r'name="form_token" value="(\w+)"', page.text)
    assert found is not None, page.text
    return found[1]


async def sign_in(admin: httpx.AsyncClient, password: str = PASSWORD, **fields: str) -> httpx.Response:
    token = token_in(await admin.get("/sign-in"))
    return await shown(admin, await admin.post("/sign-in", data={"form_token": token, "password": password, **fields}))


async def press(admin: httpx.AsyncClient, path: str, *, page: str, **fields: str) -> httpx.Response:
    return await shown(admin, await admin.post(path, data={"form_token": token_in(await admin.get(page)), **fields}))


async def is_signed_in(admin: httpx.AsyncClient) -> bool:
    return (await admin.get("/jobs")).status_code == 200


async def test_without_the_password_in_the_environment_there_are_no_such_pages(campus: TestCampus) -> None:
    assert password_of({"CAMPUS_OPERATOR_PASSWORD": SecretStr("")}) is password_of({}) is None
    async with open_campus(harbour=make_harbour()) as without, without.admin() as admin:
        for path in (*PAGES, "/sign-in", "/events"):
            answer = await admin.get(path, headers=HTML)
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        assert (await admin.post("/sign-in")).status_code == 404
    for path in PAGES[1:]:
        assert PASSWORD not in (await campus.http.get(path, headers=HTML)).text
    assert (await campus.http.get("/sign-in", headers=HTML)).status_code == 404


def test_a_password_that_nobody_could_use_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "campus.toml"
    path.write_text("[buildings.gateway]\n")
    for password, said in {
        "hello": "has 5 characters; use 12 or more",
        f"{PASSWORD} ": "has a blank at its edge",
        f"{PASSWORD}\udcff": "characters that nobody can type",
    }.items():
        with pytest.raises(ConfigError, match=f"CAMPUS_OPERATOR_PASSWORD .*{said}"):
            read_config(path, {"CAMPUS_OPERATOR_PASSWORD": password})


async def test_nobody_sees_or_does_anything_before_signing_in(campus: TestCampus, admin: httpx.AsyncClient) -> None:
    await campus.key("harbour")
    before = await campus.service.keys.list()
    token = token_in(await admin.get("/sign-in"))
    _, entries = operators_pages(campus.service, PASSWORD)
    guarded = [one for one in entries if one.path not in ("/sign-in", "/answers/{name}") and not one.path.startswith("/static")]
    assert len(guarded) == 17
    for entry in guarded:
        path = entry.path.replace("{name}", "harbour.sweep").replace("{key}", "key_")
        for method in entry.methods:
            answer = await admin.request(method, path, data={"form_token": token, "product": "harbour"} if method == "POST" else None)
            if path.endswith("/events"):
                assert answer.status_code == 401
            elif method == "POST":
                assert (await shown(admin, answer)).status_code == 401
            else:
                assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/sign-in"), entry
            assert "harbour" not in answer.text
    assert await campus.service.keys.list() == before
    await campus.service.scheduler.read_records()
    assert not any(one.running or one.last_started for one in campus.service.scheduler.status())


async def test_the_right_password_opens_a_session_with_a_new_random_id_that_ends(
    campus: TestCampus, admin: httpx.AsyncClient, clock: Clock
) -> None:
    planted = "p" * 32
    admin.cookies.set(SESSION, planted)
    answer = await sign_in(admin, next="/jobs")
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
    (cookie,) = [one for one in answer.headers.get_list("set-cookie") if one.startswith(SESSION)]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    session = cookie.partition("=")[2].partition(";")[0]
    assert (session != planted, len(session)) == (True, 32)
    admin.cookies.clear()
    admin.cookies.set(SESSION, planted)
    assert not await is_signed_in(admin), "an id that was planted before is never signed in"
    admin.cookies.clear()
    admin.cookies.set(SESSION, session)
    assert await is_signed_in(admin)
    clock.move(timedelta(hours=11, minutes=59))
    assert await is_signed_in(admin)
    clock.move(timedelta(minutes=2))
    assert not await is_signed_in(admin), "it ends after twelve hours"
    await sign_in(admin)
    clock.step(timedelta(hours=-1))
    assert not await is_signed_in(admin), "and no later when the clock is set back"
    clock.step(timedelta(hours=1))


async def test_a_session_ends_with_signing_out_and_with_another_password(campus: TestCampus, admin: httpx.AsyncClient) -> None:
    await sign_in(admin)
    session = admin.cookies[SESSION]
    assert (await press(admin, "/sign-out", page="/")).headers["location"] == "/sign-in"
    admin.cookies.set(SESSION, session)
    assert not await is_signed_in(admin)
    admin.cookies.clear()
    await sign_in(admin)
    session = admin.cookies[SESSION]
    async with (
        open_campus(harbour=make_harbour(), secrets={"CAMPUS_OPERATOR_PASSWORD": f"{PASSWORD}2"}) as other,
        other.admin() as elsewhere,
    ):
        elsewhere.cookies.set(SESSION, session)
        assert not await is_signed_in(elsewhere)
        assert (await sign_in(elsewhere)).status_code == 403


async def test_a_browser_stays_signed_in_at_several_processes_of_one_host() -> None:
    first, second = ({"server": {"openapi": "harbour", "admin": f"127.0.0.1:{port}"}} for port in (9101, 9102))
    async with (
        open_campus(harbour=make_harbour(), secrets=SECRETS, tables=first) as one,
        open_campus(harbour=make_harbour(), secrets=SECRETS, tables=second) as other,
        one.admin() as admin,
        other.admin() as elsewhere,
    ):
        for client in (admin, elsewhere):
            client.headers.update(HTML)
            await sign_in(client)
        admin.cookies.update(elsewhere.cookies)  # a browser sends a host's cookies to all its ports
        elsewhere.cookies.update(admin.cookies)
        assert await is_signed_in(admin)
        assert await is_signed_in(elsewhere)


async def test_guesses_are_limited_by_address_whatever_a_header_claims_and_nothing_repeats_them(
    campus: TestCampus, admin: httpx.AsyncClient, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = token_in(await admin.get("/sign-in"))
    guess = {"form_token": token, "password": "a-wrong-guess-1"}
    for number in range(10):
        wrong = await shown(admin, await admin.post("/sign-in", data=guess, headers={"X-Forwarded-For": f"192.0.2.{number}"}))
        assert (wrong.status_code, "This is not the password" in wrong.text) == (403, True)
        assert "a-wrong-guess-1" not in wrong.text
    limited = await shown(admin, await admin.post("/sign-in", data={"form_token": token, "password": PASSWORD}))
    assert (limited.status_code, int(limited.headers["retry-after"]) > 0) == (429, True)
    assert SESSION not in admin.cookies
    clock.move(timedelta(minutes=1))
    assert (await sign_in(admin)).status_code == 303
    assert "a-wrong-guess-1" not in caplog.text
    assert PASSWORD not in caplog.text
    assert [record.client for record in refusals(caplog)] == ["127.0.0.1"] * 10  # type: ignore[attr-defined]


def refusals(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.msg == "operator's password refused"]


async def test_behind_a_proxy_that_campus_toml_names_guesses_are_those_of_the_address_in_its_header(
    caplog: pytest.LogCaptureFixture,
) -> None:
    named = {"server": {"public_url": ORIGIN, "openapi": "harbour", "trusted_proxies": ["127.0.0.1"]}}
    async with open_campus(harbour=make_harbour(), secrets=SECRETS, tables=named) as behind, behind.admin() as browser:
        guess = {"form_token": token_in(await browser.get("/sign-in", headers=HTML)), "password": "a-wrong-guess-1"}
        await browser.post("/sign-in", data=guess, headers={**HTML, "X-Forwarded-For": "192.0.2.7"})
    assert [record.client for record in refusals(caplog)] == ["192.0.2.7"]  # type: ignore[attr-defined]


def test_however_many_addresses_guess_they_have_sixty_guesses_and_the_operator_gets_in_on_the_machine(clock: Clock) -> None:
    limit = SignInLimit(clock)

    def guess(address: str) -> None:
        limit.check(Request({"type": "http", "client": (address, 1)}))

    for number in range(60):
        guess(f"192.0.2.{number}")
    with pytest.raises(Problem) as refused:
        guess("198.51.100.1")
    assert refused.value.status == 429
    guess("127.0.0.1")


async def test_over_https_the_cookie_is_bound_to_the_host_and_never_sent_in_the_open(admin: httpx.AsyncClient) -> None:
    token = token_in(await admin.get("https://localhost/sign-in"))
    answer = await admin.post("https://localhost/sign-in", data={"form_token": token, "password": PASSWORD})
    (cookie,) = [one for one in answer.headers.get_list("set-cookie") if "session" in one]
    assert cookie.startswith(f"__Host-{SESSION}=")
    assert "Secure" in cookie
    assert (await admin.get("https://localhost/jobs")).status_code == 200


async def test_a_form_does_nothing_without_the_token_of_the_operators_own_page(campus: TestCampus, operator: httpx.AsyncClient) -> None:
    before = await campus.service.keys.list()
    token = token_in(await operator.get("/keys"))
    async with campus.admin() as stranger:
        others = token_in(await stranger.get("/sign-in", headers=HTML))
        operator.cookies.set(FORM, stranger.cookies[FORM])  # as a page at another port of the host could
    forms = ("/keys", "/keys/key_x/revoke", "/jobs/harbour.sweep/run", "/payments/accept", "/payments/reconcile", "/check", "/sign-out")
    for path in forms:
        for given, headers in (({}, {}), ({"form_token": others}, {}), ({"form_token": token}, {"Sec-Fetch-Site": "same-site"})):
            refused = await operator.post(path, data={"product": "harbour", **given}, headers=headers)
            assert (refused.status_code, "form_expired" in refused.text) == (403, True), (path, given)
    assert (await campus.service.keys.list(), await is_signed_in(operator)) == (before, True)
    issued = await operator.post("/keys", data={"form_token": token, "product": "harbour"}, headers={"Sec-Fetch-Site": "same-origin"})
    assert (await shown(operator, issued)).status_code == 200


async def test_a_key_is_issued_shown_once_found_and_revoked(campus: TestCampus, operator: httpx.AsyncClient, clock: Clock) -> None:
    issued = await press(operator, "/keys", page="/keys", product="harbour", note=ALL_AT_ONCE)
    assert issued.headers["cache-control"] == "private, no-store"
    (token,) = set(re.findall(r"campus_live_\w{30,}", issued.text))
    assert (await campus.http.get("/v1/harbour/secret_berth", headers={"Authorization": f"Bearer {token}"})).status_code == 200
    clock.move(timedelta(seconds=1))
    for _ in range(51):
        await campus.service.keys.issue("recorder")
    first, found = await operator.get("/keys"), await press(operator, "/keys/search", page="/keys", like=token)
    assert token[:30] not in first.text + found.text
    (key_id,) = re.findall(r"Revoke it: (key_\w{12})", found.text)
    assert key_id not in first.text
    assert first.text.count(">valid<") == 50
    (older,) = re.findall(r'href="(/keys\?before=key_\w{12})', first.text)
    assert key_id in (await operator.get(older)).text
    assert harm_in(found.text) == []
    assert "&lt;script&gt;" in found.text
    revoked = await press(operator, f"/keys/{key_id}/revoke", page="/keys")
    assert ">revoked<" in (await operator.get(revoked.headers["location"])).text
    assert (await campus.http.get("/v1/harbour/secret_berth", headers={"Authorization": f"Bearer {token}"})).status_code == 402
    for path, fields in (("/keys", {"product": "nothing"}), ("/keys/key_nothing/revoke", {})):
        refused = await press(operator, path, page="/keys", **fields)
        assert (refused.status_code, 'role="alert"' in refused.text) == (409, True)


async def test_a_form_that_is_sent_again_issues_no_second_key(campus: TestCampus, operator: httpx.AsyncClient) -> None:
    page = await operator.get("/keys")
    fields = {"form_token": token_in(page), "product": "harbour"}
    before = len(await campus.service.keys.list())
    assert (await shown(operator, await operator.post("/keys", data={**fields, "product": "nothing"}))).status_code == 409
    issued, again = [await operator.post("/keys", data=fields) for _ in range(2)]
    assert issued.headers["location"] == again.headers["location"]
    assert "campus_live_" in (await shown(operator, again)).text
    assert len(await campus.service.keys.list()) == before + 1


async def test_however_many_answers_strangers_are_kept_the_operators_stay(
    campus: TestCampus, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("campus.layout.kept.OF_STRANGERS", 0)
    assert "campus_live_" in (await press(operator, "/keys", page="/keys", product="harbour")).text


async def test_a_form_whose_key_could_not_be_issued_may_be_sent_again(campus: TestCampus, operator: httpx.AsyncClient) -> None:
    page = await operator.get("/keys")
    fields = {"form_token": token_in(page), "product": "harbour"}
    for old, new, status in (("key_events", "gone", 503), ("gone", "key_events", 200)):
        async with campus.service.core.storage.write() as session:
            await (await session.connection()).execute(text(f"ALTER TABLE {old} RENAME TO {new}"))
        assert (await shown(operator, await operator.post("/keys", data=fields))).status_code == status


async def test_the_beginning_of_a_token_finds_its_key_however_it_was_copied(campus: TestCampus, operator: httpx.AsyncClient) -> None:
    key, token = await campus.service.keys.issue("harbour")
    masked = f"{token[:16]}…", f"{token[:18]}****"
    copied = dict.fromkeys([token[:20], token[14:22], f'"Authorization": "Bearer {token}"', *masked], 1)
    for like, times in {**copied, f"campus_live_{token[12:20].swapcase()}": 0}.items():
        found = await press(operator, "/keys/search", page="/keys", like=like)
        assert found.text.count(f"Revoke it: {key.id}") == times, like
        assert token[:30] not in found.text


async def test_a_job_runs_when_the_button_is_pressed_unless_it_is_running_and_its_error_is_shown(
    campus: TestCampus, operator: httpx.AsyncClient
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(campus.service.run_jobs)
        for name in ("harbour.sweep", "harbour.dredge"):
            assert (await press(operator, f"/jobs/{name}/run", page="/jobs")).headers["location"] == f"/jobs#{name}"
        page = await operator.get("/jobs")
        with anyio.fail_after(patience(20)):
            while page.text.count("mud:") != 1 or ">well<" not in page.text:
                await anyio.sleep(0.05)
                page = await operator.get("/jobs")
        tasks.cancel_scope.cancel()
    assert harm_in(page.text) == []
    assert "mud: &lt;script&gt;" in page.text
    assert "by hand" in page.text
    assert (await press(operator, "/jobs/harbour.sweep/run", page="/jobs")).status_code == 303  # nobody runs it now: it stays asked for
    for job, why in {"sweep": "harbour.sweep is being run by", "nothing": "there is no job"}.items():
        refused = await press(operator, f"/jobs/harbour.{job}/run", page="/jobs")
        assert (refused.status_code, why in refused.text) == (409, True)


async def test_every_page_is_unharmed_by_hostile_texts_and_is_framed_cached_and_indexed_by_nobody(
    campus: TestCampus, operator: httpx.AsyncClient, clock: Clock
) -> None:
    clock.move(timedelta(seconds=1))  # newer than every key of another test, and so on the first page
    await campus.service.keys.issue("harbour", note=ALL_AT_ONCE)
    async with campus.service.core.storage.write() as session:
        session.add(payment_row("pay_1", "settled", unproven=True))
        session.add(ledger_row("settled", at=campus.service.core.now()))
    site = campus.service.sites["recorder"]
    async with site.storage.write() as session:
        await session.exec(text(TARGET), params={"address": f"https://hook.example/{ALL_AT_ONCE}", "error": ALL_AT_ONCE})  # type: ignore[call-overload]
    for path in (*PAGES, "/nothing", "/keys?like=%3Cscript%3E&before=key_%3Cscript%3E"):
        page = await operator.get(path)
        assert (path, harm_in(page.text)) == (path, [])
        assert "&lt;script&gt;" in page.text or path in ("/nothing", "/jobs", "/usage"), path
        assert page.headers["cache-control"] in ("private, no-store", "no-store")
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert '<meta name="robots" content="noindex">' in page.text
        assert len(page.content) < 80_000


TARGET = """
INSERT INTO target (id, kind, address, identity, secret, owner, attempts, failing_since, last_error, host, sender, health, burst)
VALUES ('tgt_1', 'webhook', :address, X'01', X'02', NULL, 3, 1, :error, 'hook.example', 'net:x', 'suspect', 0)"""


def payment_row(name: str, state: str, *, unproven: bool = False) -> PaymentRow:
    at = Clock().time
    return PaymentRow(
        **{"id": name, "network": "eip155:84532", "asset": "0xa", "payer": f"0xpayer{ALL_AT_ONCE}", "nonce": name, "amount": 20_000},
        **{"pay_to": "0x1", "valid_before": 1, "payment": b"1", "resource": b"2", "building": "harbour", "tool": "secret_berth"},
        **{"frame": "http", "state": state, "holder": "x", "lease_until": at, "reserved_at": at, "settled_at": at},
        **{"unproven_since": at if unproven else None, "overdue_at": at if unproven else None, "reason": ALL_AT_ONCE},
    )


def ledger_row(event: str, *, at: Any, quantity: int = 1) -> LedgerRow:
    return LedgerRow(
        **{"at": at, "event": event, "building": "harbour", "tool": "secret_berth", "frame": "http", "quantity": quantity},
        **{"payment_id": "pay_1", "network": "eip155:84532", "amount": 20_000, "detail": ALL_AT_ONCE},
    )


async def test_a_text_that_no_database_stores_is_refused_on_every_page(stored: TestCampus) -> None:
    async with stored.admin() as admin:
        admin.headers.update(HTML)
        await sign_in(admin)
        for path, fields in (("/keys", {"product": "harbour", "note": "a\0"}), ("/keys/search", {"like": "\0"})):
            assert (await press(admin, path, page="/keys", **fields)).status_code == 422
        assert (await press(admin, "/keys/key_%00/revoke", page="/keys")).status_code == 409
        assert (await admin.get("/keys?before=%00&like=%00")).status_code == 200
        key = {"Authorization": f"Bearer {await stored.key('harbour')}"}
        token = token_in(await stored.http.get("/tools/harbour/find", headers=HTML | key))
        sent = await stored.http.post("/keys/disconnect", data={"form_token": token, "client": "\0"}, headers=HTML | key)
        assert sent.status_code == 422
    await stored.service.feature("audit_log").flush()
    assert "/keys/key_%00/revoke" in [
        one.tool for one in await last_acts(stored.service.core.storage, since=stored.service.core.now(), limit=9)
    ]


@pytest.mark.both_databases
async def test_payments_are_summed_drawn_and_accepted(storage_url: str) -> None:
    async with (
        open_campus(harbour=hostile_harbour(), secrets=SECRETS, tables={"payments": PAYMENTS}, storage=storage_url) as campus,
        campus.admin() as admin,
    ):
        await sign_in(admin)
        assert "No payment yet." in (await admin.get("/payments")).text
        async with campus.service.core.storage.write() as session:
            session.add_all([payment_row("pay_1", "settled", unproven=True), payment_row("pay_2", "settled")])
            now = campus.service.core.now()
            session.add_all([ledger_row("settled", at=now), ledger_row("offered", at=now, quantity=8)])
        page = (await admin.get("/payments")).text
        assert "$0.02 by 1 payment on" in page
        assert 'aria-label="12.5 % of the terms were paid"' in page
        assert "Income by day, the last 30 days" in page
        assert re.findall(r">(settled|unproven)</span></td><td class=\"number\">(\d+)<", page) == [("settled", "1"), ("unproven", "1")]
        accepted = await press(admin, "/payments/accept", page="/payments")
        assert "1 payment accepted" in accepted.text
        assert await campus.service.feature("payments").unproven.overdue() == []  # type: ignore[union-attr]
        reconciled = await press(admin, "/payments/reconcile", page="/payments")
        assert (reconciled.status_code, 'role="alert"' in reconciled.text) == (409, True)
        assert "path-secret" not in page + reconciled.text


async def test_what_is_left_to_do_what_was_called_what_ends_and_what_was_done_is_shown(stored: TestCampus) -> None:
    async with stored.admin() as admin:
        await sign_in(admin)
        page = (await admin.get("/")).text
        assert re.search(r"<summary>\d of 6 points are done: what is left</summary>", page)
        assert "week cannot be bought" in page
        assert f'<a href="{stored.service.plan.config.url}">Public site</a>' in page
        key, token = await stored.service.keys.issue("week", note=ALL_AT_ONCE)
        for _ in range(3):
            assert (await stored.call("moor", key=token, ship="Ada")).status == 200
        await stored.service.feature("usage").flush()
        await stored.service.feature("audit_log").flush()
        keys = (await admin.get("/keys")).text
        assert re.search(rf"End within 7 days.*?{key.id}.*?Issue a key", keys, re.DOTALL)
        calls = (await admin.get("/usage")).text
        assert ("Calls by day, the last 30 days" in calls, "<code>harbour.moor</code>" in calls) == (True, True)
        page = (await admin.get("/")).text
        assert ("/sign-in</code>" in page, f"key issued {key.id}" in page) == (True, True)
        assert harm_in(page) + harm_in(keys) + harm_in(calls) == []
        assert "\u202e" not in keys


async def test_a_part_that_cannot_be_read_leaves_the_others_standing_and_is_not_said_to_be_well(
    campus: TestCampus, operator: httpx.AsyncClient
) -> None:
    async def pages_without(storage: Storage, table: str, *paths: str) -> list[str]:
        pages = []
        for old, new in ((table, "gone"), ("gone", table)):
            async with storage.write() as session:
                await (await session.connection()).execute(text(f"ALTER TABLE {old} RENAME TO {new}"))
            pages += [await operator.get(path) for path in paths if new == "gone"]
        assert {page.status_code for page in pages} == {200}
        return [page.text for page in pages]

    recorder_storage = campus.service.sites["recorder"].storage
    overview, payments = await pages_without(campus.service.core.storage, "payments", "/", "/payments")
    [alerts] = await pages_without(recorder_storage, "target", "/alerts")
    [buildings] = await pages_without(recorder_storage, "monitor", "/buildings")
    assert ["This could not be read" in page for page in (overview, payments, alerts)] == [True] * 3
    assert "ending soon" in overview
    assert "Every target is reached" not in alerts
    assert "not read" in buildings


async def test_the_overview_says_how_many_requests_there_were_and_how_many_failed_on_our_side() -> None:
    async with open_campus(harbour=make_harbour(), secrets=SECRETS) as campus, campus.admin() as admin:
        admin.headers.update(HTML)
        await sign_in(admin)
        for path in ("/paid", "/nothing", "/sink"):
            await campus.http.get(path)
        assert "3 since the start, 1 of them failed on our side" in (await admin.get("/")).text


async def test_a_building_that_was_not_checked_is_not_well() -> None:
    async def hangs(site: Site[Any, Any]) -> Sequence[str]:
        await anyio.sleep_forever()
        raise AssertionError

    harbour = replace(make_harbour(), checks=[Check(hangs, on="ready")])
    async with open_campus(harbour=harbour, secrets=SECRETS) as campus, campus.admin() as admin:
        admin.headers.update(HTML)
        campus.service.health._check_seconds = 0.1
        await sign_in(admin)
        page = (await admin.get("/buildings")).text
        assert ">well<" not in page
        assert ">not checked<" in page
        assert "the checks did not finish within 0.1 s" in page


async def test_a_problem_of_the_operators_listener_leads_to_no_page_that_is_not_there(admin: httpx.AsyncClient) -> None:
    page = await admin.post("/sign-in", data={"password": PASSWORD})
    assert (page.status_code, "form_expired" in page.text) == (403, True)
    for link in re.findall(r'href="(/[^"]*)"', page.text):
        assert (await admin.get(link, follow_redirects=True)).status_code == 200, link


async def test_all_checks_are_run_as_by_the_command(campus: TestCampus, operator: httpx.AsyncClient) -> None:
    page = await press(operator, "/check", page="/")
    assert "the facilitator at 127.0.0.1:9 does not answer" in page.text
    assert re.search("needs? your attention", page.text)


async def test_the_configuration_is_shown_without_a_secret() -> None:
    hidden = "s3cret-value"
    tables = {
        "server": {"admin": "127.0.0.1:9100"},
        "storage": {"url": f"postgresql://jane:{hidden}@db.example/campus"},
        "payments": PAYMENTS | {"rpc_url": f"https://node.example/{hidden}"},
        "products": {"pass": {"scope": "all", "price": "29", "term": "30 days"}},
        "mail": {"host": "smtp.example", "sender": "alerts@example"},
    }
    config = config_model().model_validate({**tables, "secrets": {"CAMPUS_MAIL_PASSWORD": hidden}})

    class Loaded:
        name = "wiki"
        settings = None

        class table:
            @staticmethod
            def model_dump(**options: object) -> dict[str, Any]:
                server = {"command": "uvx", "args": ["--token", hidden], "env": {"X": hidden}, "headers": {"Authorization": hidden}}
                more = {"api_key": hidden, "auth_header": hidden, "list_url": f"https://u:{hidden}@host.example/{hidden}?k={hidden}"}
                more |= {"accessKey": hidden, "db_pass": hidden, "key_id": hidden, "max_tokens": 4096}
                nested = {"nested": [{"x": hidden}], "login_credentials": {"user": hidden, "pin": hidden, "more": {"y": hidden}}}
                return {"server": server, **more, **nested, "tools": {"get_token": {"price": "0.01", "key": "optional"}}}

    shown = shown_configuration(config, [Loaded()])  # type: ignore[list-item]
    assert hidden not in shown
    addresses = ('admin = "127.0.0.1:9100"', 'rpc_url = "https://node.example/…"', 'url = "postgresql://db.example/…"')
    for line in (*addresses, "max_tokens = 4096"):
        assert line in shown
    assert '[products.pass]\nscope = "all"' in shown
    assert '[buildings.wiki.tools.get_token]\nprice = "0.01"\nkey = "optional"' in shown


async def test_a_stream_of_events_tells_of_a_job_and_ends_with_the_session(
    campus: TestCampus, admin: httpx.AsyncClient, clock: Clock
) -> None:
    await sign_in(admin)
    heard: list[bytes] = []
    app = admin._transport.app  # type: ignore[attr-defined]
    cookie = f"{SESSION}={admin.cookies[SESSION]}".encode()
    scope = {
        **{"type": "http", "method": "GET", "path": "/jobs/events", "raw_path": b"/jobs/events", "query_string": b"", "scheme": "http"},
        **{"headers": [(b"host", b"localhost"), (b"cookie", cookie)], "client": ("127.0.0.1", 1), "server": ("localhost", 80)},
        **{"http_version": "1.1", "asgi": {"spec_version": "2.4"}, "root_path": ""},
    }

    async def receive() -> dict[str, Any]:
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: Mapping[str, Any]) -> None:
        heard.append(message.get("body", b""))

    async def hears(event: str) -> None:
        with anyio.fail_after(patience(20)):
            while f"event: {event}\n".encode() not in b"".join(heard):  # noqa: ASYNC110  # as a browser would
                await anyio.sleep(0.02)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app, scope, receive, send)
        await hears("ready")
        clock.move(timedelta(minutes=2))
        await campus.service.run_job("harbour.sweep")
        await hears("changed")
        await press(admin, "/sign-out", page="/")
        await hears("ended")
        tasks.cancel_scope.cancel()
