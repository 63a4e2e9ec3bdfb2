"""The fleet's pages: what they show of monitors, their buttons, and that each key sees its own fleet only."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
import httpx
import pytest
from forms import shown
from pages.hostile import ALL_AT_ONCE, harm_in
from patience import patience
from recorder.receivers import Receiver
from recorder.recorders import OpenRecorder, Recorder, unlike
from sqlalchemy import Engine, event, func, insert, select
from starlette.types import Message

from buildings.recorder.jobs import tidy
from buildings.recorder.models import Entry
from buildings.recorder.monitors.listing import STATES, History, StoredChange
from buildings.recorder.monitors.rows import state_in_sql
from buildings.recorder.monitors.state_machine import state_in_a_word, stored_state
from buildings.recorder.pages import changed_lines
from buildings.recorder.tables import DELIVERIES, MONITORS
from campus.storage import in_snapshot, in_transaction
from campus.storage.tables import CoreTables

pytestmark = pytest.mark.anyio
HTML = {"Accept": "text/html"}
NAME = ALL_AT_ONCE[:100]


async def page_of(recorder: Recorder, path: str, key: str | None) -> httpx.Response:
    page = await recorder.campus.http.get(path, headers=HTML | ({"Authorization": f"Bearer {key}"} if key else {}))
    assert harm_in(page.text) == []
    assert "\u202e" not in page.text, "what turns the direction of a text is shown as what it is"
    assert page.headers["cache-control"] == "private, no-store" or page.status_code >= 400
    return page


@contextmanager
def counted(statements: list[str]) -> Iterator[None]:
    def note(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield
    event.remove(Engine, "before_cursor_execute", note)


async def press(recorder: Recorder, path: str, key: str | None, *, page: str = "/recorder", **fields: str) -> httpx.Response:
    found = re.search(r'name="form_token" value="(\w+)"', (await page_of(recorder, page, key)).text)
    headers = HTML | ({"Authorization": f"Bearer {key}"} if key else {})
    answer = await recorder.campus.http.post(path, data={"form_token": found[1] if found else "", **fields}, headers=headers)
    return await shown(recorder.campus.http, answer, headers)


async def test_a_monitor_is_registered_watched_paused_taken_over_and_deleted_with_the_buttons(
    recorder: Recorder, receiver: Receiver
) -> None:
    key = await recorder.campus.key("recorder")
    made = await press(recorder, "/recorder", key, name=NAME, period_minutes="1", grace_minutes="1", alert_webhook=receiver.url())
    assert made.status_code == 200, made.text
    assert harm_in(made.text) == []
    secret = re.search(r"/beat/(mon_\w+)/(\w+)", made.text)
    assert secret is not None
    monitor, at = secret[1], f"/recorder/{secret[1]}"
    capsules = [{"step": 1, "said": ALL_AT_ONCE}, {"step": 2, "said": ALL_AT_ONCE}]
    for seq, capsule in enumerate(capsules, start=1):
        beaten = await recorder.campus.http.post(f"/v1/recorder/beat/{monitor}/{secret[2]}", json={"capsule": capsule, "seq": seq})
        assert beaten.status_code == 200
    shown = (await page_of(recorder, at, key)).text
    assert secret[2] not in shown
    assert "every minute, 1 minute of grace" in shown
    begin, end = (shown.index(f"{mark} UNTRUSTED DATA") for mark in ("<code>BEGIN", "<code>END"))
    assert begin < shown.index("<del>") < shown.rindex("<ins>") < end, "all that the agent wrote is between the marks"
    assert begin < shown.index("&#34;said&#34;") < end
    assert "<del>-  &#34;step&#34;: 1,</del>" in shown
    assert "<ins>+  &#34;step&#34;: 2,</ins>" in shown
    assert ">alive<" in (await page_of(recorder, "/recorder", key)).text
    wrong = await press(recorder, f"{at}/update", key, page=at, name="other", period_minutes="often", grace_minutes="3")
    assert (wrong.status_code, 'value="often"' in wrong.text, "every minute, 1 minute" in wrong.text) == (422, True, True)
    changed = {"name": "other", "period_minutes": "2.5", "grace_minutes": "0"}
    assert (await press(recorder, f"{at}/update", key, page=at, **changed)).headers["location"] == at
    shown = (await page_of(recorder, at, key)).text
    assert ("<h1>other</h1>" in shown, "every 2.5 minutes, 0 minutes of grace" in shown) == (True, True)
    assert (await press(recorder, f"{at}/update", key, page=at, name=NAME, period_minutes="1", grace_minutes="1")).status_code == 303
    assert (await press(recorder, f"{at}/takeover", key, page=at)).status_code == 409
    assert (await press(recorder, f"{at}/pause", key, page=at)).headers["location"] == at
    assert ">paused<" in (await page_of(recorder, at, key)).text
    await press(recorder, f"{at}/resume", key, page=at)
    await recorder.pass_time(seconds=90)
    assert ">late<" in (await page_of(recorder, at, key)).text
    await recorder.pass_time(seconds=60)
    assert ">dead<" in (await page_of(recorder, at, key)).text
    taken = await press(recorder, f"{at}/takeover", key, page=at)
    assert "/beat/" in taken.text
    assert secret[2] not in taken.text
    assert (await press(recorder, f"{at}/explode", key, page=at)).status_code == 404
    assert (await press(recorder, f"{at}/delete", key, page=at)).headers["location"] == "/recorder"
    assert (await page_of(recorder, at, key)).status_code == 404


@pytest.mark.both_databases
async def test_a_fleet_of_two_thousand_is_shown_the_worst_first_by_state_and_name_in_pages_of_a_few_statements(
    recorder: Recorder, receiver: Receiver
) -> None:
    key = await recorder.campus.key("recorder")
    made = await recorder.register(receiver.url(), key=key, name="first")
    first, now, storage = await recorder.row(made), recorder.clock(), recorder.campus.site.storage
    modes = ("up", "up", "stuck", "idle", "missed", "failed", "paused", "asleep")
    rows = [
        {**first._asdict(), **unlike(f"mon_{number:05}"), "name": f"100%_{NAME[:60]} {number}"}
        | {"mode": modes[number % 8], "first_beat_at": now if number % 3 else None}
        | {"deadline_at": now + timedelta(minutes=number % 5 - 1), "expected_at": now + timedelta(minutes=number % 5 - 2)}
        for number in range(2_000)
    ]
    for start in range(0, 2_000, 500):
        await in_transaction(storage, lambda connection, start=start: connection.execute(insert(MONITORS), rows[start : start + 500]))
    words = select(MONITORS, state_in_sql(now).label("word")).where(MONITORS.c.id.like("mon_0____"))
    found = await in_snapshot(storage, lambda connection: connection.execute(words).all())
    assert len(found) == 2_000
    assert [row.word for row in found] == [state_in_a_word(stored_state(row), now) for row in found]
    counts = Counter(row.word for row in found) + Counter(["waiting"])
    statements: list[str] = []
    with counted(statements):
        page = (await page_of(recorder, "/recorder", key)).text
    assert len(statements) < 25
    shown = re.findall(r'<td><span class="badge \w+">([a-z ]+)</span></td>\n<td class="any"><a', page)
    assert (shown, len(page) < 60_000) == (["dead"] * 50, True)
    for state in STATES:
        assert (f">{state.capitalize()} {counts[state]:,}<" in page) == bool(counts[state])
    late = (await page_of(recorder, "/recorder?state=late&sort=name&page=2", key)).text
    assert re.findall(r'<td><span class="badge \w+">([a-z ]+)</span></td>\n<td class="any"><a', late)[:50] == ["late"] * min(
        counts["late"] - 50, 50
    )
    assert 'href="/recorder?state=late&amp;sort=name&amp;page=3"' in late
    only = (await page_of(recorder, "/recorder?q=FIRST", key)).text
    assert (only.count("/recorder/mon_"), "2,001 of 20 monitors" in only) == (1, True)
    assert (await page_of(recorder, "/recorder?q=100%25_&state=idle", key)).text.count('<td class="any"><a') == 50
    assert "No monitor matches" in (await page_of(recorder, "/recorder?q=1000%25_&page=99999&state=nonsense&sort=x", key)).text
    last = (await page_of(recorder, "/recorder?page=999999", key)).text
    assert "Page 41 of 41, 2,001 monitors" in last


def test_an_outage_is_shown_by_hour_and_day_as_the_alerts_reported_it() -> None:
    now = datetime(2026, 11, 24, 12, tzinfo=UTC)
    ago = partial(_ago, now)
    entry = _entry_alive(since=ago(hours=30))
    twice = [StoredChange(ago(hours=5), "dead"), StoredChange(ago(hours=3), "recovered")] * 2  # one for each target
    unended = StoredChange(ago(days=2), "failed")
    history = History(entry, ago(days=2, hours=6), [*twice, unended])
    assert history.outages(now) == [(unended.at, ago(hours=3))]
    history = History(entry, ago(days=2, hours=6), twice)
    assert history.outages(now) == [(ago(hours=5), ago(hours=3))]
    assert "".join(slot.tone[0] for slot in history.hours(now)) == "g" * 19 + "bb" + "ggg"
    days = history.days(now)
    assert [(one.day.day, one.outages, one.down / timedelta(hours=1), one.watched / timedelta(hours=1)) for one in days] == [
        (22, 0, 0, 18),
        (23, 0, 0, 24),
        (24, 1, 2, 12),
    ]
    assert days[-1].up == pytest.approx(100 - 200 / 12)
    dead = History(entry.model_copy(update={"state": "dead", "since": ago(minutes=90)}), ago(hours=4), [])
    assert [slot.tone for slot in dead.hours(now)] == ["none"] * 20 + ["good"] * 2 + ["bad"] * 2
    paused = History(entry.model_copy(update={"paused": True, "since": ago(hours=2)}), ago(hours=4), [])
    assert [slot.tone for slot in paused.hours(now)][-5:] == ["none", "good", "good", "none", "none"]
    assert History(entry, None, []).days(now) == []


def _ago(now: datetime, **span: float) -> datetime:
    return now - timedelta(**span)


def _entry_alive(since: datetime) -> Entry:
    known = {"state": "alive", "paused": False, "since": since, "last_beats": ()}
    return Entry.model_construct(**known)


async def test_all_that_a_tool_changes_is_changed_on_the_page_and_a_new_secret_ends_the_old_addresses(
    recorder: Recorder, receiver: Receiver
) -> None:
    key, other = await recorder.campus.key("recorder"), await recorder.campus.key("recorder")
    monitor = await recorder.register(receiver.url(), key=key, name="worker")
    at = f"/recorder/{monitor['monitor_id']}"
    changed = await press(recorder, f"{at}/update", key, page=at, name="moved", alert_webhook=receiver.url("/new"))
    assert (changed.status_code, "whsec_" in changed.text, "Changed: moved" in changed.text) == (200, True, True)
    assert changed.headers["cache-control"] == "private, no-store"
    assert [target["state"] for target in (await recorder.call("fleet_status", key=key)).data["monitors"][0]["targets"]] == ["untested"]
    wrong = await press(recorder, f"{at}/update", key, page=at, alert_webhook="ftp://x")
    assert (wrong.status_code, 'value="ftp://x"' in wrong.text) == (422, True)
    assert (await press(recorder, f"{at}/secret", other, page="/recorder")).status_code == 404
    assert (await recorder.call("replace_secret", monitor_id=monitor["monitor_id"])).status == 402
    assert (await recorder.beat(monitor)).status == 200
    made = await press(recorder, f"{at}/secret", key, page=at)
    fresh = re.search(r"http[^ &<]+/beat/(mon_\w+)/(\w+)", made.text)
    assert fresh is not None
    assert "Waiting for the first beat with the new secret" in made.text, "what was heard before is no answer"
    refused = await recorder.beat(monitor)
    assert (refused.status, refused.data["code"]) == (404, "monitor_not_found")
    assert (await recorder.campus.http.get(fresh[0])).status_code == 200
    assert "We heard you" in (await page_of(recorder, f"{at}/heard?beats=1", key)).text
    assert fresh[2] not in (await page_of(recorder, at, key)).text
    assert (await page_of(recorder, f"{at}/heard", other)).status_code == 404


async def test_a_form_that_is_sent_again_does_nothing_twice_and_a_deletion_asks_first(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    headers = HTML | {"Authorization": f"Bearer {key}"}

    async def twice(path: str, page: str, **fields: str) -> list[httpx.Response]:
        found = re.search(rf'action="{path}".*?name="form_token" value="(\w+)"', (await page_of(recorder, page, key)).text, re.DOTALL)
        data = {"form_token": found[1] if found else "", **fields}
        answers = [await recorder.campus.http.post(path, data=data, headers=headers) for _ in range(2)]
        assert answers[0].headers["location"] == answers[1].headers["location"]
        return [await shown(recorder.campus.http, answer, headers) for answer in answers]

    wrong, again = await twice("/recorder", "/recorder", name="nightly", alert_webhook="ftp://x")
    assert (wrong.status_code, again.status_code) == (422, 422), "what was refused may be sent again"
    made, again = await twice("/recorder", "/recorder", name="nightly", alert_webhook=receiver.url())
    assert (made.status_code, again.status_code) == (200, 200)
    assert made.text.partition("Keep it")[0] == again.text.partition("Keep it")[0]
    (monitor,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
    at = f"/recorder/{monitor['monitor_id']}"
    tool = "/tools/recorder/register_monitor"
    made, again = await twice(tool, tool, **{"argument.name": "second", "argument.alert_webhook": receiver.url()})
    assert (made.status_code, again.status_code) == (200, 200)
    assert (await recorder.call("fleet_status", key=key)).data["count"] == 2
    sent, again = await twice(f"{at}/test", at)
    assert (sent.status_code, again.status_code) == (303, 303)
    confirmed = r'<details class="confirm">\s*<summary>Delete</summary>\s*<form method="post" action="[^"]+/delete"'
    assert re.search(confirmed, (await page_of(recorder, at, key)).text)
    deleted, again = await twice(f"{at}/delete", at)
    assert (deleted.status_code, again.status_code) == (303, 303)


async def test_a_form_does_its_work_once_in_all_processes_and_after_a_restart(
    open_recorder: OpenRecorder, receiver: Receiver, storage_url: str
) -> None:
    async with open_recorder(storage=storage_url) as one, open_recorder(storage=storage_url, clock=one.clock) as other:
        key = await one.campus.key("recorder")
        headers = HTML | {"Authorization": f"Bearer {key}"}
        token = re.search(r'name="form_token" value="(\w+)"', (await page_of(one, "/recorder", key)).text)
        assert token is not None
        fields = {"form_token": token[1], "name": "nightly"}
        cookies = dict(one.campus.http.cookies)

        async def sent_to(recorder: Recorder, webhook: str = receiver.url()) -> int:
            recorder.campus.http.cookies.update(cookies)
            answer = await recorder.campus.http.post("/recorder", data={**fields, "alert_webhook": webhook}, headers=headers)
            return (await shown(recorder.campus.http, answer, headers)).status_code

        assert [await sent_to(recorder, "ftp://x") for recorder in (one, other)] == [422, 422], "what was refused may be sent again"
        answered: list[int] = []

        async def send(recorder: Recorder) -> None:
            answered.append(await sent_to(recorder))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send, one)
            tasks.start_soon(send, other)
        assert answered == [200, 200], "the second waits for the answer of the first"
    async with open_recorder(storage=storage_url, clock=one.clock) as restarted:
        assert await sent_to(restarted) == 200
        assert (await restarted.call("fleet_status", key=key)).data["count"] == 1
        await restarted.pass_time(days=8)
        made = await press(restarted, "/recorder", key, name="later", alert_webhook=receiver.url())
        assert made.status_code == 200
        kept = select(func.count()).select_from(CoreTables.metadata.tables["sent_forms"])
        storage = restarted.campus.service.core.storage
        assert await in_snapshot(storage, lambda connection: connection.scalar(kept)) == 1, "those of last week are deleted"


async def test_a_key_sees_and_changes_no_monitor_of_another(recorder: Recorder, receiver: Receiver) -> None:
    mine, other = await recorder.campus.key("recorder"), await recorder.campus.key("recorder")
    monitor = await recorder.register(receiver.url(), key=mine, name="mine")
    at = f"/recorder/{monitor['monitor_id']}"
    assert "mine" not in (await page_of(recorder, "/recorder", other)).text
    assert (await page_of(recorder, at, other)).status_code == 404
    for action in ("update", "pause", "takeover", "delete"):
        assert (await press(recorder, f"{at}/{action}", other, name="theirs")).status_code == 404
    assert (await press(recorder, f"{at}/delete", mine, page="/recorder", form_token="0" * 64)).status_code == 403
    assert (await page_of(recorder, at, mine)).status_code == 200


async def test_a_test_alert_reaches_the_target_and_the_timeline_and_changes_nothing(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(receiver.url(), key=key, name=NAME)
    at = f"/recorder/{monitor['monitor_id']}"
    sent = await press(recorder, f"{at}/test", key, page=at)
    assert "A test alert is on its way" in (await page_of(recorder, sent.headers["location"], key)).text
    again = await press(recorder, f"{at}/test", key, page=at)
    assert (again.status_code, "is not delivered yet" in again.text) == (409, True)
    await recorder.deliver()
    assert receiver.types == ["monitor.test"]
    assert receiver.requests[0].json["monitor"] == {"id": monitor["monitor_id"], "name": NAME, "description": None}
    assert receiver.requests[0].json["state"] is None
    shown = (await page_of(recorder, at, key)).text
    assert f"test alert: delivered to webhook https://localhost:{receiver.port}/… after" in shown
    assert ">waiting for the first beat<" in shown
    for _ in range(2):
        await press(recorder, f"{at}/test", key, page=at)
        await recorder.deliver()
    limited = await press(recorder, f"{at}/test", key, page=at)
    assert (limited.status_code, "at most 3 test alerts a minute" in limited.text) == (429, True)
    assert 0 < int(limited.headers["retry-after"]) <= 60
    assert len(receiver.requests) == 3


async def test_delivered_alerts_stay_in_the_timeline_for_a_month_and_no_longer_than_their_monitor(
    recorder: Recorder, receiver: Receiver
) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(receiver.url(), key=key, period_minutes=1, grace_minutes=0)
    free = await recorder.register(receiver.url("/free"), period_minutes=1, grace_minutes=0)
    at = f"/recorder/{monitor['monitor_id']}"
    await recorder.pass_time(seconds=61)
    await recorder.sweep()
    receiver.answer(500, 200)
    await recorder.deliver()
    await recorder.pass_time(seconds=30)
    await recorder.deliver()
    assert sorted(receiver.types) == ["monitor.dead"] * 3
    shown = (await page_of(recorder, at, key)).text
    assert re.search(r"alert that it is dead: delivered to webhook https://localhost:\d+/… after \d+\.\d s \(msg_\w+\)", shown)
    deliveries = await recorder.deliveries()
    assert [one.monitor_id for one in deliveries] == [monitor["monitor_id"]], "of a monitor without a key nothing is kept"
    await recorder.call("delete_monitor", monitor_id=free["monitor_id"], secret=free["secret"])
    await recorder.pass_time(days=29)
    await tidy(recorder.campus.site)
    assert "alert that it is dead" in (await page_of(recorder, at, key)).text
    await recorder.pass_time(days=1)
    await tidy(recorder.campus.site)
    assert await recorder.deliveries() == []
    await recorder.beat(monitor)
    await recorder.deliver()
    assert len(await recorder.deliveries()) == 1
    await recorder.call("delete_monitor", monitor_id=monitor["monitor_id"], secret=monitor["secret"])
    assert await recorder.deliveries() == []


async def test_of_each_target_the_newest_two_hundred_delivered_alerts_are_kept(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    monitors = [await recorder.register(receiver.url(path), key=key) for path in ("/one", "/two")]
    targets = {one.address.rpartition("/")[2]: one.id for one in await recorder.targets()}
    at, storage = recorder.clock(), recorder.campus.site.storage
    rows = [
        {"target_id": targets[name], "kind": "dead", "at": at, "message_id": f"msg_{number}", "delivered_at": at}
        | {"monitor_id": monitor["monitor_id"], "reason": "timeout"}
        for name, monitor in zip(("one", "two"), monitors, strict=True)
        for number in range(205)
    ]
    await in_transaction(storage, lambda connection: connection.execute(insert(DELIVERIES), rows))
    await recorder.beat(monitors[0], status="fail")
    await recorder.deliver()
    found = [one for one in await recorder.deliveries() if one.target_id == targets["one"]]
    assert (len(found), sorted(found, key=lambda one: one.id)[-1].kind) == (200, "failed")
    assert len(await recorder.deliveries()) == 405


async def test_without_a_key_the_page_says_what_a_key_shows_and_another_scope_is_told(recorder: Recorder) -> None:
    page = (await recorder.campus.http.get("/recorder", headers=HTML)).text
    assert "Sign in with your key" in page
    assert 'href="/pricing#recorder"' in page
    other = (await page_of(recorder, "/recorder", await recorder.campus.key("cve"))).text
    assert "Your key does not open this page." in other
    assert "Sign in with another key" in other
    assert "Authorization" not in page + other, "a person sends no header"
    assert (await recorder.campus.http.get("/recorder")).json()["signed_in"] is False
    assert (await recorder.campus.http.get("/recorder/events")).status_code == 402
    assert (await press(recorder, "/recorder", None, name="x")).status_code == 402


async def test_a_visitor_without_a_key_registers_a_monitor_that_one_webhook_hears_of(recorder: Recorder, receiver: Receiver) -> None:
    for webhook in ("", "ftp://x"):
        refused = await press(recorder, "/recorder", None, free="1", name=NAME, alert_webhook=webhook)
        assert (refused.status_code, 'role="alert"' in refused.text, harm_in(refused.text)) == (422, True, [])
    made = await press(recorder, "/recorder", None, free="1", name=NAME, alert_webhook=receiver.url())
    assert (made.status_code, harm_in(made.text), made.headers["cache-control"]) == (200, [], "private, no-store")
    beat = re.search(r"/v1/recorder/beat/mon_\w+/\w+", made.text)
    assert beat is not None
    page = re.search(r'class="button" href="(/recorder/free/\w+)">To the monitor', made.text)
    assert page is not None
    assert ("Waiting for the first beat" in made.text, "waiting" in (await page_of(recorder, page[1], None)).text) == (True, True)
    assert (await recorder.campus.http.get(beat[0])).status_code == 200
    assert "We heard you" in (await page_of(recorder, f"{page[1]}/heard", None)).text
    again = await press(recorder, "/recorder", None, free="1", name="two", alert_webhook=receiver.url())
    assert (again.status_code, "one monitor" in again.text or "already" in again.text) == (409, True), again.text


async def test_what_a_registration_lacks_is_said_beside_the_form_which_keeps_what_was_typed(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    for fields in ({"name": NAME}, {"name": NAME, "alert_webhook": "ftp://x"}, {"name": NAME, "period_minutes": "often"}):
        page = await press(recorder, "/recorder", key, **fields)
        assert page.status_code == 422
        assert 'role="alert"' in page.text
        assert "&lt;script&gt;" in page.text
        assert harm_in(page.text) == []


@dataclass
class Stream:
    """The events that a browser has received."""

    status: int = 0
    text: str = ""
    arrived: anyio.Event = field(default_factory=anyio.Event)

    async def send(self, message: Message) -> None:
        self.status = message.get("status", self.status)
        self.text += message.get("body", b"").decode()
        self.arrived.set()
        self.arrived = anyio.Event()

    async def shows(self, words: str) -> str:
        with anyio.fail_after(patience(20)):
            while words not in self.text:
                await self.arrived.wait()
        return re.findall(r"^id: (\w+)$", self.text, re.MULTILINE)[-1]


@asynccontextmanager
async def stream(recorder: Recorder, key: str, *, seen: str = "", last: str = "") -> AsyncIterator[Stream]:
    hung_up, opened = anyio.Event(), Stream()
    given = {"host": "campus.test", "authorization": f"Bearer {key}", **({"last-event-id": last} if last else {})}
    scope = {
        **{"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "GET", "scheme": "http"},
        **{"path": "/recorder/events", "raw_path": b"/recorder/events", "query_string": f"seen={seen}".encode(), "root_path": ""},
        **{"server": ("campus.test", 80), "client": ("127.0.0.1", 1)},
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }

    async def receive() -> Message:
        await hung_up.wait()
        return {"type": "http.disconnect"}

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recorder.campus.app, scope, receive, opened.send)
        with anyio.fail_after(patience(20)):
            while not opened.status:
                await opened.arrived.wait()
        yield opened
        hung_up.set()


async def test_a_stream_says_what_changed_since_its_page_was_made_or_while_the_browser_was_away(
    recorder: Recorder, receiver: Receiver
) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(receiver.url(), key=key)
    found = re.search(r"/recorder/events\?.*seen=(\w+)", (await page_of(recorder, "/recorder", key)).text)
    assert found is not None
    async with stream(recorder, key, seen=found[1]) as same, stream(recorder, key) as first:
        await first.shows("event: ready")
        assert "event:" not in same.text
    await recorder.beat(monitor)
    async with stream(recorder, key, seen=found[1]) as later:
        newest = await later.shows("event: changed")
    assert newest != found[1]
    async with stream(recorder, key, seen=found[1], last=newest) as back, stream(recorder, key) as first:
        await first.shows("event: ready")
        assert "event:" not in back.text
    path = f"monitor={monitor['monitor_id']}"
    on_page = re.search(rf"events\?{path}&amp;seen=(\w+)", (await page_of(recorder, f"/recorder/{monitor['monitor_id']}", key)).text)
    assert on_page is not None
    async with stream(recorder, key, seen=f"{on_page[1]}&{path}") as same, stream(recorder, key, seen=f"0&{path}") as changed:
        await changed.shows(f"id: {on_page[1]}\nevent: changed")
        assert "event:" not in same.text


async def test_a_stream_ends_with_its_key_and_a_browser_that_hangs_up_leaves_room_for_another(recorder: Recorder) -> None:
    key, other = await recorder.campus.key("recorder"), await recorder.campus.key("recorder")
    streams = recorder.campus.site.state.streams
    async with AsyncExitStack() as stack:
        many = [await stack.enter_async_context(stream(recorder, key)) for _ in range(8)]
        await many[-1].shows("event: ready")
        async with stream(recorder, key) as ninth:
            assert ninth.status == 429
        async with stream(recorder, other) as its:
            await its.shows("event: ready")
            assert len(streams) == 9
        await recorder.campus.service.keys.revoke(key)
        for one in many:
            await one.shows("event: ended")
    assert len(streams) == 0


async def test_a_page_of_the_fleet_tells_a_fault_from_a_missing_key(open_recorder: OpenRecorder) -> None:
    async with open_recorder(settings={"tools": {"fleet_status": {"hidden": True}}}) as recorder:
        key = await recorder.campus.key("recorder")
        assert (await page_of(recorder, "/recorder", key)).status_code == 404
    async with open_recorder() as recorder:
        sent = await press(recorder, "/recorder", await recorder.campus.key("cve"), page="/tools/recorder/register_monitor", name="x")
        assert (sent.status_code, "Sign in with another key" in sent.text) == (403, True)


def test_a_difference_shows_the_changed_lines_and_is_cut_when_everything_changed() -> None:
    assert changed_lines("same", "same") == []
    assert changed_lines("a\nb", "a\nc") == [("same", "@@ -1,2 +1,2 @@"), ("same", " a"), ("removed", "-b"), ("added", "+c")]
    many = list(map(str, range(5_000)))
    assert len(changed_lines("\n".join(many), "")) == 401
    deep = changed_lines("\n".join(many), "\n".join([*many[:3_000], "new", *many[3_000:]]))
    assert (deep[0], len(deep)) == (("same", "@@ -2998,6 +2998,7 @@"), 8)
    far = changed_lines("\n".join(many), "\n".join([*many[:3_000], "new", *many[3_000:4_000], "newer", *many[4_000:]]))
    assert [line for line in far if line[0] != "same"] == [("added", "+new")]
    assert "not compared" in far[-1][1]
    hostile = ["\n".join(str(n * step % 181) for n in range(16_000)) for step in (7, 11)]  # many equal lines: hours for diff -u of them all
    assert len(changed_lines(*hostile)) <= 401
