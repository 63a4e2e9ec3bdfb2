"""Until someone acts: reminders, escalations, acknowledging, snoozes, maintenance and several failures in a row, on both databases."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from recorder.receivers import Receiver
from recorder.recorders import Recorder
from sqlalchemy import select

from buildings.recorder.clock import move_times
from buildings.recorder.monitors.credentials import acknowledge_url
from buildings.recorder.monitors.muting import Announcement, announcement
from buildings.recorder.monitors.state_machine import Kind, Mode
from buildings.recorder.tables import ALERTS, TARGETS
from campus.storage import in_snapshot, in_transaction

pytestmark = pytest.mark.anyio
PLAIN, PAGER = "https://localhost/chat", "https://localhost/pager"
DAILY = {"period_minutes": 60, "grace_minutes": 5}


async def keyed(recorder: Recorder, **arguments: Any) -> tuple[dict[str, Any], str]:
    key = await recorder.campus.key("recorder")
    await recorder.pass_time(seconds=0)
    return await recorder.register(**{"webhook": PLAIN, "key": key, **DAILY, **arguments}), key


async def later(recorder: Recorder, **span: float) -> None:
    await recorder.pass_time(**span)
    await recorder.sweep()


async def told(recorder: Recorder, monitor: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The last part of each target's address, and the kind of each of its alerts that waits."""
    joined = ALERTS.join(TARGETS, TARGETS.c.id == ALERTS.c.target_id)
    chosen = select(TARGETS.c.address, ALERTS.c.kind).select_from(joined).where(ALERTS.c.monitor_id == monitor["monitor_id"])
    rows = await in_snapshot(recorder.campus.site.storage, lambda connection: connection.execute(chosen.order_by(ALERTS.c.id)).all())
    return [(address.rpartition("/")[2], kind) for address, kind in rows]


async def forget(recorder: Recorder) -> None:
    """As if all were delivered."""
    await in_transaction(recorder.campus.site.storage, lambda connection: connection.execute(ALERTS.delete()) and None)


async def test_a_monitor_that_stays_down_is_reminded_of_until_somebody_acknowledges_it(recorder: Recorder) -> None:
    monitor, key = await keyed(recorder, remind_minutes=60)
    await later(recorder, minutes=65)
    await later(recorder, minutes=59)
    assert await told(recorder, monitor) == [("chat", "dead")]
    await later(recorder, minutes=1)
    await recorder.sweep()
    assert await told(recorder, monitor) == [("chat", "dead"), ("chat", "reminder")]
    await later(recorder, minutes=60)
    assert await told(recorder, monitor) == [("chat", "dead"), ("chat", "reminder")], "a newer reminder replaces one that waits"
    await recorder.call("acknowledge", monitor_id=monitor["monitor_id"], key=key)
    await later(recorder, hours=20)
    assert await told(recorder, monitor) == [("chat", "dead")]
    await recorder.beat(monitor)
    await later(recorder, minutes=65)
    await later(recorder, minutes=60)
    assert await told(recorder, monitor) == [("chat", kind) for kind in ("dead", "recovered", "dead", "reminder")], "each trouble anew"


async def test_an_escalation_goes_to_its_target_once_a_trouble_lasts_and_only_who_was_told_hears_of_the_end(
    recorder: Recorder,
) -> None:
    monitor, key = await keyed(recorder, targets=[{"address": PAGER, "after_minutes": 30, "on": ["dead", "failed", "recovered"]}])
    await later(recorder, minutes=65)
    await later(recorder, minutes=29)
    await recorder.beat(monitor)
    assert await told(recorder, monitor) == [("chat", "dead"), ("chat", "recovered")]
    await forget(recorder)
    await recorder.beat(monitor, status="fail")
    await later(recorder, minutes=30)
    await later(recorder, minutes=30)
    await recorder.beat(monitor)
    assert await told(recorder, monitor) == [("chat", "failed"), ("pager", "failed"), ("chat", "recovered"), ("pager", "recovered")]
    await forget(recorder)
    await recorder.beat(monitor, status="fail")
    await recorder.call("acknowledge", monitor_id=monitor["monitor_id"], key=key)
    await later(recorder, minutes=60)
    await recorder.beat(monitor)
    assert await told(recorder, monitor) == [("chat", "failed"), ("chat", "recovered")], "somebody acted before"


async def test_a_target_is_sent_only_the_kinds_that_it_names(recorder: Recorder) -> None:
    monitor, key = await keyed(recorder, targets=[{"address": PAGER, "on": ["failed"]}])
    await later(recorder, minutes=65)
    assert await told(recorder, monitor) == [("chat", "dead")]
    await recorder.beat(monitor)
    await recorder.beat(monitor, status=3)
    await recorder.beat(monitor)
    assert [kind for target, kind in await told(recorder, monitor) if target == "pager"] == ["failed"]
    (entry,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
    assert [(target["on"], target["after_minutes"]) for target in entry["targets"]] == [(None, None), (["failed"], None)]


async def test_targets_that_make_no_sense_are_refused(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    senseless: Sequence[tuple[list[object], str]] = (
        ([{"address": "http://example.com/x"}], "target_refused"),
        ([{"address": PLAIN}], "target_twice"),
        ([{"address": PAGER, "on": ["recovered"]}], "trouble_needed"),
        ([{"address": PAGER, "on": ["smoke"]}], "invalid_request"),
        ([{"address": f"{PAGER}{number}"} for number in range(11)], "invalid_request"),
    )
    for targets, code in senseless:
        reply = await recorder.call("register_monitor", name="a", alert_webhook=PLAIN, targets=targets, key=key)
        assert (reply.status, reply.code) == (422, code), targets
    assert await recorder.targets() == []


async def test_without_a_key_a_monitor_has_one_target_without_conditions(recorder: Recorder) -> None:
    reply = await recorder.call("register_monitor", name="a", alert_webhook=PLAIN, targets=[{"address": PAGER}])
    assert (reply.status, reply.data["code"]) == (402, "access_required")
    free = await recorder.register(PLAIN)
    key = await recorder.campus.key("recorder")
    own = {"monitor_id": free["monitor_id"], "secret": free["secret"], "targets": [{"address": PAGER}]}
    assert (await recorder.call("update_monitor", **own)).status == 402
    assert (await recorder.call("update_monitor", **own, key=key)).data["code"] == "owner_needed"


@pytest.mark.both_databases
async def test_an_update_replaces_the_list_of_targets_and_what_waits_goes_to_the_first(recorder: Recorder) -> None:
    monitor, key = await keyed(recorder, targets=[{"address": PAGER, "after_minutes": 10}])
    await recorder.beat(monitor, status="fail")
    wanted = [{"address": "https://localhost/new", "on": ["failed"]}, {"address": PAGER}]
    reply = await recorder.call("update_monitor", monitor_id=monitor["monitor_id"], targets=wanted, key=key)
    assert [one.startswith("whsec_") for one in reply.data["target_secrets"]] == [True, True]
    assert await told(recorder, monitor) == [("new", "failed")]
    (entry,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
    assert [(target["on"], target["after_minutes"]) for target in entry["targets"]] == [(["failed"], None), (None, None)]
    assert len(await recorder.targets()) == 2


@pytest.mark.usefixtures("mailbox")
async def test_a_mailbox_among_the_targets_is_asked_first(recorder: Recorder) -> None:
    monitor, _ = await keyed(recorder, targets=[{"address": "ops@example.com", "after_minutes": 10}])
    assert any("confirm" in note for note in monitor["notes"])
    await recorder.beat(monitor, status="fail")
    await later(recorder, minutes=10)
    assert await told(recorder, monitor) == [("ops@example.com", "confirm"), ("chat", "failed"), ("ops@example.com", "failed")]


@pytest.mark.parametrize(
    ("is_muted", "before", "held", "alert", "raised", "then_held"),
    [
        (False, "up", None, "dead", "dead", None),
        (False, "missed", None, "recovered", "recovered", None),
        (True, "up", None, "dead", None, "dead"),
        (True, "missed", "dead", "failed", None, "failed"),
        (True, "missed", "dead", "recovered", None, None),
        (False, "missed", "dead", "recovered", None, None),
        (True, "missed", None, "recovered", None, "recovered"),
        (True, "missed", "reminder", "recovered", None, "recovered"),
        (True, "up", "recovered", "failed", None, "reminder"),
        (True, "missed", None, "failed", None, "reminder"),
        (False, "missed", "reminder", "recovered", "recovered", None),
        (False, "up", None, None, None, None),
        (True, "up", "recovered", None, None, "recovered"),
    ],
)
def test_what_a_mute_holds(is_muted: bool, before: Mode, held: str | None, alert: Kind | None, raised: str, then_held: str) -> None:
    assert announcement(alert, held=held, before=before, is_muted=is_muted) == Announcement(raised, then_held)  # type: ignore[arg-type]


async def test_a_snooze_holds_alerts_and_tells_at_its_end_what_is_still_wrong(recorder: Recorder) -> None:
    monitor, key = await keyed(recorder)
    snooze = partial(recorder.call, "snooze", monitor_id=monitor["monitor_id"], key=key)
    await snooze(minutes=120)
    await recorder.beat(monitor, status="fail")
    await recorder.beat(monitor)
    await later(recorder, minutes=66)
    assert (await recorder.row(monitor)).mode == "missed"
    await recorder.beat(monitor)
    await later(recorder, minutes=60)
    assert await told(recorder, monitor) == [], "what recovered within a snooze is never told"
    await snooze(minutes=30)
    await recorder.beat(monitor, status="fail")
    await later(recorder, minutes=29)
    assert await told(recorder, monitor) == []
    await later(recorder, minutes=1)
    assert await told(recorder, monitor) == [("chat", "failed")]
    await snooze(minutes=30)
    await later(recorder, minutes=30)
    assert await told(recorder, monitor) == [("chat", "failed"), ("chat", "reminder")], "known before, and still wrong"
    await snooze(until=(recorder.clock() + timedelta(minutes=30)).isoformat())
    await later(recorder, minutes=10)
    await recorder.beat(monitor)
    await recorder.beat(monitor)
    assert await told(recorder, monitor) == [("chat", "failed")]
    ended = await snooze(minutes=0)
    assert ended.data["muted_until"] is None
    await recorder.sweep()
    assert await told(recorder, monitor) == [("chat", "failed"), ("chat", "recovered")]
    chosen = select(ALERTS.c.since, ALERTS.c.until).where(ALERTS.c.kind == "recovered")
    since, until = await in_snapshot(recorder.campus.site.storage, lambda connection: connection.execute(chosen).one())
    assert until - since == timedelta(minutes=30 + 30 + 10)


async def test_a_failure_in_maintenance_is_told_when_the_maintenance_ends(recorder: Recorder) -> None:
    begins, ends = (recorder.clock() + timedelta(minutes=minutes) for minutes in (10, 40))
    window = f"{begins:%Y-%m-%dT%H:%M}/{ends:%Y-%m-%dT%H:%M}"
    monitor, _ = await keyed(recorder, maintenance=[window])
    await later(recorder, minutes=15)
    await recorder.beat(monitor, status="fail")
    await later(recorder, minutes=20)
    assert await told(recorder, monitor) == []
    await later(recorder, minutes=5)
    assert await told(recorder, monitor) == [("chat", "failed")]
    assert (await recorder.row(monitor)).due_at is None


async def test_only_so_many_failures_in_a_row_raise_the_alert(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url(), alert_after_failures=3)
    for status in ("fail", "start", 1, "ok", "fail", "start", "fail"):
        await recorder.beat(monitor, status=status)
    assert await recorder.alerts(monitor) == [], "an ok between them ends the row; a start does not"
    await recorder.beat(monitor, status=7)
    await recorder.deliver()
    (received,) = receiver.requests
    assert (received.json["reason"], received.json["type"]) == ("3 failures in a row", "monitor.failed")
    assert "worker failed: 3 failures in a row" in received.json["text"]


async def test_a_pause_that_only_its_owner_ends_outlasts_beats(recorder: Recorder) -> None:
    monitor = await recorder.register(manual_resume=True)
    own = {"monitor_id": monitor["monitor_id"], "secret": monitor["secret"]}
    await recorder.beat(monitor)
    await recorder.call("pause_monitor", **own)
    for status in ("ok", "fail", "start"):
        await recorder.beat(monitor, status=status)
    row = await recorder.row(monitor)
    assert (row.mode, row.beats, await recorder.alerts(monitor)) == ("paused", 4, [])
    assert (await recorder.call("resume_monitor", **own)).data["paused"] is False
    await recorder.beat(monitor, status="fail")
    assert [kind for kind, _ in await recorder.alerts(monitor)] == ["failed"]


@pytest.mark.usefixtures("frame")
async def test_what_is_acknowledged_or_snoozed_is_shown_and_what_is_well_is_not_acknowledged(recorder: Recorder) -> None:
    monitor, key = await keyed(recorder, remind_minutes=60)
    own = {"monitor_id": monitor["monitor_id"], "secret": monitor["secret"]}
    assert (await recorder.call("acknowledge", **own)).data["code"] == "nothing_wrong"
    for nonsense in ({}, {"minutes": 5, "until": "2026-09-01T00:00:00Z"}):
        assert (await recorder.call("snooze", **own, **nonsense)).status == 422
    await recorder.beat(monitor, status="fail")
    now = recorder.clock()
    first = (await recorder.call("acknowledge", **own)).data
    recorder.clock.move(timedelta(minutes=5))
    assert (await recorder.call("acknowledge", **own)).data == first
    await recorder.call("snooze", **own, minutes=90)
    (entry,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
    shown = {"acknowledged_at": now, "muted_until": now + timedelta(minutes=95)}
    assert {name: entry[name] for name in shown} == {name: f"{at:%Y-%m-%dT%H:%M:%SZ}" for name, at in shown.items()}
    stranger = {"monitor_id": monitor["monitor_id"], "secret": "x" * 32}
    for tool, more in (("acknowledge", {}), ("snooze", {"minutes": 5})):
        assert (await recorder.call(tool, **stranger, **more)).data["code"] == "monitor_not_found"


async def test_the_link_of_an_alert_acknowledges_by_its_button_and_not_by_being_opened(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url(), remind_minutes=60)
    await recorder.beat(monitor, status="fail")
    await recorder.deliver()
    url = receiver.requests[0].json["acknowledge_url"]
    assert url in receiver.requests[0].json["text"]
    assert monitor["secret"] not in url
    page = await recorder.campus.http.get(url, headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["cache-control"]) == (200, "private, no-store")
    assert "<button" in page.text
    assert (await recorder.row(monitor)).acknowledged_at is None
    posted = await recorder.campus.http.post(url, headers={"Accept": "text/html"})
    assert "Acknowledged" in posted.text
    assert (await recorder.row(monitor)).acknowledged_at == recorder.clock()
    for wrong in (f"{url}0", url.replace("/1/", "/2/"), url.replace("/1/", "/x/"), url.replace(monitor["monitor_id"], "mon_other")):
        assert (await recorder.campus.http.post(wrong)).json()["code"] == "link_not_found"
    await recorder.beat(monitor)
    await recorder.beat(monitor, status="fail")
    old = await recorder.campus.http.post(url, headers={"Accept": "text/html"})
    assert "is over" in old.text
    row = await recorder.row(monitor)
    assert row.acknowledged_at is None, "the next trouble is another"
    assert (
        await recorder.campus.http.post(acknowledge_url("", row.id, epoch=row.epoch, secret_digest=row.secret_digest))
    ).status_code == 200


@pytest.mark.both_databases
async def test_after_an_own_outage_everybody_is_reminded_once_and_not_before_lost_beats_could_be_sent_again(
    recorder: Recorder,
) -> None:
    monitor, _ = await keyed(recorder, remind_minutes=60, targets=[{"address": PAGER, "after_minutes": 90}])
    await recorder.beat(monitor, status="fail")
    await later(recorder, minutes=30)
    recorder.clock.move(timedelta(hours=9))  # nobody watches
    await recorder.sweep()
    await recorder.sweep()
    assert [one for one in await told(recorder, monitor) if one[1] in ("failed", "reminder")] == [("chat", "failed")]
    await later(recorder, minutes=5)
    news = [one for one in await told(recorder, monitor) if one[1] != "blind"]
    assert news == [("chat", "failed"), ("pager", "failed"), ("chat", "reminder")]
    await later(recorder, minutes=59)
    await later(recorder, minutes=1)
    assert [one for one in await told(recorder, monitor) if one[1] == "reminder"] == [("chat", "reminder"), ("pager", "reminder")]


@pytest.mark.both_databases
async def test_the_times_of_reminders_and_snoozes_move_with_a_clock_that_is_set_forward(recorder: Recorder) -> None:
    jump = timedelta(days=3)
    monitor, key = await keyed(recorder, remind_minutes=60)
    await recorder.beat(monitor, status="fail")
    await later(recorder, minutes=61)
    await recorder.call("snooze", monitor_id=monitor["monitor_id"], minutes=30, key=key)
    before = await recorder.row(monitor)
    await in_transaction(recorder.campus.site.storage, partial(move_times, jump=jump, now=recorder.clock() + jump))
    after = await recorder.row(monitor)
    assert (after.muted_until - before.muted_until, after.reminded_at - before.reminded_at) == (jump, jump)


@pytest.mark.both_databases
async def test_monitors_that_more_follows_die_beside_those_that_nothing_does(recorder: Recorder) -> None:
    followed, key = await keyed(recorder, remind_minutes=60)
    snoozed, _ = await keyed(recorder, webhook="https://localhost/snoozed", key=key)
    plain, _ = await keyed(recorder, webhook="https://localhost/plain", key=key)
    await recorder.call("snooze", monitor_id=snoozed["monitor_id"], minutes=600, key=key)
    await recorder.pass_time(minutes=65)
    assert await recorder.sweep() == 3
    assert [await told(recorder, one) for one in (followed, snoozed, plain)] == [[("chat", "dead")], [], [("plain", "dead")]]
    assert (await recorder.row(plain)).due_at is None
    assert (await recorder.row(snoozed)).due_at == (await recorder.row(snoozed)).muted_until


async def test_a_target_hears_of_the_end_of_what_it_was_told_of_also_where_the_trouble_became_another_one(recorder: Recorder) -> None:
    dead_only = [{"address": PAGER, "on": ["dead", "recovered"]}]
    monitor, key = await keyed(recorder, stuck_after=2, targets=dead_only)
    await recorder.beat(monitor, progress=1)
    await later(recorder, minutes=65)
    await recorder.beat(monitor, progress=1)
    await recorder.beat(monitor, progress=2)
    assert await told(recorder, monitor) == [
        *[("chat", "dead"), ("pager", "dead"), ("chat", "stuck")],
        *[("chat", "recovered"), ("pager", "recovered")],
    ]
    await forget(recorder)
    await later(recorder, minutes=65)
    await recorder.call("snooze", monitor_id=monitor["monitor_id"], key=key, minutes=30)
    await recorder.beat(monitor)
    await recorder.beat(monitor, status="fail")
    await later(recorder, minutes=30)
    await recorder.beat(monitor)
    assert [kind for target, kind in await told(recorder, monitor) if target == "pager"] == ["dead", "recovered"]


async def test_a_pause_ends_what_people_were_told_of(recorder: Recorder) -> None:
    monitor, key = await keyed(recorder, targets=[{"address": PAGER, "on": ["dead", "recovered"]}])
    await later(recorder, minutes=65)
    who = {"monitor_id": monitor["monitor_id"], "key": key}
    await recorder.call("snooze", **who, minutes=30)
    await recorder.call("pause_monitor", **who)
    await forget(recorder)
    await recorder.beat(monitor, status="fail")
    await later(recorder, minutes=30)
    assert await told(recorder, monitor) == [("chat", "failed")], "a new trouble, and no reminder of one"
    await recorder.beat(monitor)
    assert await told(recorder, monitor) == [("chat", "failed"), ("chat", "recovered")], "the pager was told of neither"
