"""The public status page: what is measured, what it says of a first day, of gaps and failures, and of alerts."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from recorder.receivers import open_mailbox
from sqlmodel import select

from buildings.gateway import building as gateway
from buildings.recorder import building as recorder
from campus.features.status.days import ALERTS, SERVICE, StatusDays, added, seconds_by_day
from campus.features.status.pages import StatusPages
from campus.features.status.tables import StatusDay
from campus.http_parts import http_parts
from campus.testing import Clock, TestCampus, open_campus

pytestmark = pytest.mark.anyio
NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WORKS = {SERVICE: True, "recorder": True}


def row(name: str, until: datetime, **values: Any) -> StatusDay:
    return StatusDay(day=until.date().isoformat(), name=name, good=0, bad=0, until=until, **values)


@pytest.mark.parametrize(
    ("rows", "now", "works", "alerts", "expected"),
    [
        ([], NOON, WORKS, {}, [("2026-08-21", SERVICE, 0, 0), ("2026-08-21", "recorder", 0, 0)]),
        ([row(SERVICE, NOON)], NOON + MINUTE, {SERVICE: True}, {}, [("2026-08-21", SERVICE, 60, 0)]),
        ([row(SERVICE, NOON)], NOON + MINUTE, {SERVICE: False}, {}, [("2026-08-21", SERVICE, 0, 60)]),
        ([row(SERVICE, NOON)], NOON + 5 * MINUTE, {SERVICE: True}, {}, [("2026-08-21", SERVICE, 0, 300)]),
        (
            [row(SERVICE, NOON)],
            NOON + timedelta(days=1),
            {SERVICE: True},
            {},
            [("2026-08-21", SERVICE, 0, 43_200), ("2026-08-22", SERVICE, 0, 43_200)],
        ),
        ([row(SERVICE, NOON)], NOON - MINUTE, {SERVICE: True}, {}, [("2026-08-21", SERVICE, 0, 0)]),
        (
            [row(SERVICE, NOON), row("recorder", NOON - MINUTE)],
            NOON + 5 * MINUTE,
            WORKS,
            {},
            [("2026-08-21", SERVICE, 0, 300), ("2026-08-21", "recorder", 0, 0)],
        ),
        ([row(SERVICE, NOON)], NOON, {SERVICE: True}, {True: 3, False: 1}, [("2026-08-21", SERVICE, 0, 0), ("2026-08-21", ALERTS, 3, 1)]),
    ],
    ids=["first", "works", "fails", "a gap", "over midnight", "the clock set back", "a part that is new", "alerts"],
)
def test_a_measurement_adds_the_time_since_the_last_one(
    rows: list[StatusDay], now: datetime, works: dict[str, bool], alerts: dict[bool, int], expected: list[Any]
) -> None:
    assert added(rows, now, works, alerts) == expected


def test_no_gap_is_counted_further_back_than_is_shown() -> None:
    found = added([row(SERVICE, NOON - timedelta(days=4_000))], NOON, {SERVICE: True}, {})
    assert len(found) == 91
    assert sum(bad for *_, bad in found) == 90 * 86_400
    assert sum(seconds_by_day(NOON, NOON + timedelta(days=3)).values()) == 3 * 86_400


@pytest.mark.both_databases
async def test_several_processes_count_each_minute_once_and_forget_after_ninety_days(storage_url: str) -> None:
    async with open_campus(gateway=gateway, storage=storage_url, clock=Clock(NOON)) as campus:
        storage = campus.service.core.storage
        one, other = StatusDays(storage), StatusDays(storage)
        alerts = Counter({True: 2})
        for minute in range(4):
            await one.measure(NOON + minute * MINUTE, WORKS, alerts)
            await other.measure(NOON + minute * MINUTE + timedelta(seconds=20), WORKS, Counter())
        found = {each.name: (each.good, each.bad) for each in other.rows if each.name != "gateway"}
        assert found == {SERVICE: (200, 0), "recorder": (200, 0), ALERTS: (2, 0)}
        assert alerts[True] == 0, "counted once"
        await other.measure(NOON + timedelta(days=100), WORKS, Counter())
        async with storage.read() as session:
            assert min((await session.exec(select(StatusDay.day))).all()) == "2026-09-01"


async def status(campus: TestCampus, accept: str = "application/json") -> Any:
    answer = await campus.http.get("/status", headers={"Accept": accept})
    assert answer.status_code == 200
    return answer.json() if accept.endswith("json") else answer.text


async def test_the_page_says_what_is_known_and_a_first_day_that_it_is_one() -> None:
    clock = Clock(NOON)
    async with open_campus(gateway=gateway, clock=clock) as campus:
        days: StatusDays = campus.service.feature("status")
        before = await status(campus)
        assert (before["state"], before["measured_since"]) == ("unknown", None)
        assert "Nothing was measured yet" in await status(campus, "text/html")
        works = {SERVICE: True, "gateway": True}
        await days.measure(clock(), works, Counter())
        clock.move(MINUTE)
        await days.measure(clock(), works, Counter())
        first = await status(campus)
        assert (first["state"], first["measured_since"]) == ("works", "2026-08-21")
        assert first["parts"][0] == {
            **{"name": "service", "title": "The service", "state": "works", "unit": "seconds"},
            "days": [{"day": "2026-08-21", "good": 60, "bad": 0}],
        }
        page = await status(campus, "text/html")
        assert "<h1>All servers work</h1>" in page
        assert "since 2026-08-21: 1 day." in page
        assert "the last 90 days, of which 1 were measured, none of them with trouble" in page
        assert '<a href="/status">Status</a>' in page
        clock.move(5 * MINUTE)
        assert (await status(campus))["state"] == "unknown", "nobody measures"
        await days.measure(clock(), works, Counter())
        page = await status(campus, "text/html")
        assert "2026-08-21: 5 min" in page
        assert "16.66 % of the time measured" in page


async def test_a_failing_check_is_said_without_its_sentence_and_what_runs_measures() -> None:
    async with open_mailbox() as mailbox:
        mail = {"mail": {"host": "127.0.0.1", "port": mailbox.port, "sender": "alerts@campus.test", "tls": "none"}}
        clock = Clock(NOON)
        async with open_campus(recorder=recorder, clock=clock, tables=mail) as campus:
            days: StatusDays = campus.service.feature("status")
            [part] = [one for one in http_parts(campus.service) if isinstance(one, StatusPages)]
            await part.measure()
            assert {one.name for one in days.rows} == {SERVICE, "recorder"}
            found = await status(campus)
            part = next(one for one in found["parts"] if one["name"] == "recorder")
            assert (found["state"], part["state"]) == ("fails", "fails"), "monitors have never been checked"
            page = await status(campus, "text/html")
            assert "Something does not work" in page
            assert "never been checked" not in page
            key = await campus.key("all")
            monitor = (await campus.call("register_monitor", key=key, name="x", alert_email="a@b.example")).data
            dispatcher = campus.site.state.dispatcher
            await dispatcher.deliver_due()
            delivered = campus.service.feature("alerts").delivered
            assert not delivered, "a question is no alert"
            await campus.http.post(mailbox.link("confirm"), content="List-Unsubscribe=One-Click")
            await campus.call("send_test_alert", key=key, monitor_id=monitor["monitor_id"])
            await dispatcher.deliver_due()
            await campus.call("send_test_alert", key=key, monitor_id=monitor["monitor_id"])
            clock.move(2 * MINUTE)
            await dispatcher.deliver_due()
            assert delivered == {True: 1, False: 1}
            await days.measure(clock(), WORKS, delivered)
            assert "1 of 2 later than a minute" in await status(campus, "text/html")
