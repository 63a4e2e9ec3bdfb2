"""Runs: what starts and ends them, when one that hangs is reported, and what is kept of them and of beats."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorder.recorders import Recorder

from buildings.recorder.beats.beat import Beat
from buildings.recorder.beats.runs import MOST_OPEN, OUTPUT_BYTES, RUNS_KEPT, RunRow, Runs, end_of
from buildings.recorder.models import BeatView, RunView
from buildings.recorder.monitors.past import beats_of, runs_of
from buildings.recorder.monitors.state_machine import Schedule, initial_state
from campus.storage import in_snapshot
from campus.testing import Clock

pytestmark = pytest.mark.anyio

STATUSES = ("start", "ok", "fail", "idle", "log", 0, 1)
HOURLY = {"period_minutes": 60, "grace_minutes": 5}


async def runs(recorder: Recorder, monitor: dict[str, Any]) -> list[RunView]:
    read = partial(runs_of, monitor_id=monitor["monitor_id"], limit=RUNS_KEPT, now=recorder.clock())
    return list(await in_snapshot(recorder.campus.site.storage, read))


async def beats(recorder: Recorder, monitor: dict[str, Any], limit: int = 200) -> list[BeatView]:
    return list(await in_snapshot(recorder.campus.site.storage, partial(beats_of, monitor_id=monitor["monitor_id"], limit=limit)))


async def test_a_run_has_its_times_its_result_its_exit_code_and_the_end_of_its_output(recorder: Recorder) -> None:
    monitor = await recorder.register(**HOURLY)
    await recorder.beat(monitor, status="start", rid="r1")
    await recorder.pass_time(seconds=90)
    assert [run.result for run in await runs(recorder, monitor)] == ["running"]
    await recorder.beat(monitor, status=3, rid="r1", output="disk full\n")
    (run,) = await runs(recorder, monitor)
    assert (run.number, run.rid, run.result, run.exit_code, run.run_seconds) == (1, "r1", "fail", 3, 90)
    assert run.output == "disk full\n"
    assert [beat.run_seconds for beat in await beats(recorder, monitor)] == [90, None]


async def test_what_ends_no_start_makes_a_run_only_if_it_tells_of_one(recorder: Recorder) -> None:
    told = list[str]()
    for arguments, results in (
        ({}, []),
        ({"status": "ok"}, []),
        ({"status": "idle"}, []),
        ({"status": 0}, ["ok"]),
        ({"status": 1}, ["fail"]),
        ({"status": "fail"}, ["fail"]),
        ({"rid": "a"}, ["ok"]),
        ({"output": "done"}, ["ok"]),
        ({"status": "log"}, []),
        ({"status": "log", "output": "hello"}, ["log"]),
    ):
        monitor = await recorder.register(f"https://localhost/{len(told)}", **HOURLY)
        await recorder.beat(monitor)
        await recorder.beat(monitor, **arguments)
        told.append(monitor["monitor_id"])
        assert [run.result for run in await runs(recorder, monitor)] == results, arguments
        assert all(run.started_at is None and run.run_seconds is None for run in await runs(recorder, monitor))


async def test_a_run_that_does_not_end_is_reported_after_its_limit_and_not_after_the_next_period(recorder: Recorder, receiver: Any) -> None:
    monitor = await recorder.register(receiver.url(), period_minutes=1440, grace_minutes=5, run_minutes=30)
    reply = await recorder.beat(monitor, status="start")
    assert reply.data["deadline_at"] == "2026-08-21T12:30:00Z"
    await recorder.pass_time(minutes=30)
    assert await recorder.sweep() == 1
    await recorder.deliver()
    assert (receiver.requests[-1].json["type"], receiver.requests[-1].json["reason"]) == ("monitor.dead", "run")
    assert [run.result for run in await runs(recorder, monitor)] == ["overdue"]
    await recorder.pass_time(minutes=1)
    assert (await recorder.beat(monitor)).data["deadline_at"] == "2026-08-22T12:36:00Z"
    (run,) = await runs(recorder, monitor)
    assert (run.result, run.run_seconds) == ("ok", 31 * 60)
    assert await recorder.alerts(monitor) == [("recovered", 1)]


async def test_next_in_of_a_start_says_how_long_the_run_may_take(recorder: Recorder) -> None:
    monitor = await recorder.register(**HOURLY)
    assert (await recorder.beat(monitor, status="start", next_in=90)).data["deadline_at"] == "2026-08-21T13:35:00Z"


async def test_of_overlapping_runs_the_earliest_limit_is_the_deadline_and_the_end_of_one_leaves_the_others(
    recorder: Recorder,
) -> None:
    monitor = await recorder.register(**HOURLY, run_minutes=10)
    for rid, minute in (("a", 0), ("b", 4), ("c", 8)):
        assert (await recorder.beat(monitor, status="start", rid=rid)).data["deadline_at"] == "2026-08-21T12:10:00Z", minute
        await recorder.pass_time(minutes=4)
    assert await recorder.sweep() == 1, "a did not end by 12:10"
    assert (await recorder.beat(monitor, rid="b")).data["deadline_at"] == "2026-08-21T12:18:00Z"
    results = {run.rid: run.result for run in await runs(recorder, monitor)}
    assert results == {"a": "overdue", "b": "ok", "c": "running"}
    assert (await recorder.beat(monitor, status="fail", rid="c")).data["state"] == "dead"
    assert (await recorder.beat(monitor)).data["deadline_at"] == "2026-08-21T13:17:00Z", "nothing waits for a any more"
    await recorder.beat(monitor, rid="a")
    assert {run.rid: run.result for run in await runs(recorder, monitor)} == {"a": "ok", "b": "ok", "c": "fail"}


async def test_a_start_replaces_the_open_run_of_its_id_and_a_takeover_ends_all(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(**HOURLY, key=key)
    for rid in (None, "a", None):
        await recorder.beat(monitor, status="start", **({"rid": rid} if rid else {}))
    assert [(run.rid, run.result) for run in await runs(recorder, monitor)] == [(None, "running"), ("a", "running"), (None, "unknown")]
    await recorder.pass_time(minutes=5)
    assert await recorder.sweep() == 1
    assert (await recorder.call("takeover", monitor_id=monitor["monitor_id"], key=key)).status == 200
    assert {run.result for run in await runs(recorder, monitor)} == {"overdue", "unknown"}
    assert (await recorder.row(monitor)).run_since is None


async def test_a_log_is_kept_with_the_open_run_and_is_no_sign_of_life(recorder: Recorder) -> None:
    monitor = await recorder.register(**HOURLY)
    await recorder.beat(monitor, status="log", output="before anything")
    row = await recorder.row(monitor)
    assert (row.first_beat_at, row.last_beat_at, row.beats, row.history) == (None, None, 0, b"")
    await recorder.beat(monitor, status="start")
    before = await recorder.row(monitor)
    await recorder.pass_time(minutes=1)
    for line in ("one\n", "two\n"):
        await recorder.beat(monitor, status="log", output=line)
    after = await recorder.row(monitor)
    assert [getattr(after, name) for name in ("mode", "deadline_at", "beats", "last_beat_at", "run_since")] == [
        getattr(before, name) for name in ("mode", "deadline_at", "beats", "last_beat_at", "run_since")
    ]
    await recorder.beat(monitor, status="ok", output="three")
    assert [(run.result, run.output) for run in await runs(recorder, monitor)] == [
        ("ok", "one\ntwo\nthree"),
        ("log", "before anything"),
    ]


async def test_a_job_that_fails_every_night_is_down_throughout_and_its_runs_say_so(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(period_minutes=1440, grace_minutes=60, key=key)
    await recorder.beat(monitor)
    for _ in range(5):
        await recorder.beat(monitor, status="start")
        await recorder.pass_time(minutes=10)
        await recorder.beat(monitor, status=1)
        await recorder.pass_time(hours=23, minutes=50)
        await recorder.sweep()
    assert await recorder.alerts(monitor) == [("failed", 1)]
    (entry,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
    assert (entry["state"], entry["reason"], round(entry["uptime"], 2)) == ("dead", "fail", 0.0)
    assert (entry["runs"]["count"], entry["runs"]["success"], entry["runs"]["last"]["exit_code"]) == (5, 0.0, 1)


async def test_the_last_hundred_runs_and_two_hundred_beats_are_kept(recorder: Recorder) -> None:
    monitor = await recorder.register(**HOURLY, key="recorder")
    for number in range(230):
        await recorder.pass_time(seconds=1)
        await recorder.beat(monitor, status="ok" if number % 2 else 0)
    kept = await beats(recorder, monitor)
    assert len(kept) == 200
    assert [beat.at for beat in kept] == [recorder.clock() - timedelta(seconds=back) for back in range(200)]
    assert [beat.status for beat in kept[:3]] == ["ok", 0, "ok"]
    assert [beat.at for beat in await beats(recorder, monitor, limit=7)] == [beat.at for beat in kept[:7]]
    assert [run.number for run in await runs(recorder, monitor)] == list(range(115, 15, -1))


async def test_of_a_monitor_without_a_key_less_is_kept(recorder: Recorder) -> None:
    monitor = await recorder.register(**HOURLY)
    for _ in range(12):
        await recorder.beat(monitor, status=1, output="x" * 9_000)
    kept = await runs(recorder, monitor)
    assert [run.number for run in kept] == list(range(12, 2, -1))
    assert {len(run.output or "") for run in kept} == {2_048}


async def test_an_outage_of_the_recorder_moves_the_limits_of_all_open_runs(recorder: Recorder) -> None:
    monitor = await recorder.register(**HOURLY, run_minutes=10)
    await recorder.beat(monitor, status="start", rid="a")
    await recorder.pass_time(minutes=1)
    await recorder.beat(monitor, status="start", rid="b")
    await recorder.sweep()
    recorder.clock.move(timedelta(minutes=30))
    assert await recorder.sweep() == 0, "both may have ended in the outage"
    deadline = (await recorder.row(monitor)).deadline_at
    await recorder.beat(monitor, rid="a")
    assert (await recorder.row(monitor)).deadline_at == deadline, "b has as long as the outage gave the monitor"
    assert [run.result for run in await runs(recorder, monitor)] == ["running", "ok"]


@given(st.lists(st.tuples(st.sampled_from(STATUSES), st.integers(0, 12), st.integers(0, 600)), max_size=60))
def test_each_run_has_one_number_ends_once_and_few_are_open(said: list[tuple[Any, int, int]]) -> None:
    now, schedule = Clock().time, Schedule(timedelta(hours=1), timedelta(minutes=5))
    state, followed, ended = initial_state(schedule, now), Runs(0, owned=True), dict[int, RunRow]()
    for status, rid, seconds in said:
        now += timedelta(seconds=seconds)
        before = followed.count
        took = followed.follow(Beat("m", b"", now, status, rid=str(rid) if rid else None), state, schedule)
        assert (took is None) or took >= timedelta(0)
        assert followed.count - before in (0, 1)
        assert len(followed.open) <= MOST_OPEN
        assert len({run.rid for run in followed.open}) == len(followed.open)
        for run in followed.changed.values():
            assert ended.get(run.number, run) == run, "what has ended stays as it is"
            if run.ended_at is not None:
                ended[run.number] = run
        assert not {run.number for run in followed.open} & ended.keys()
        since, until = followed.watched
        assert (since is None) == (until is None)


@given(st.text(max_size=3 * OUTPUT_BYTES), st.binary(max_size=2 * OUTPUT_BYTES))
def test_the_end_of_an_output_is_whole_characters_within_its_limit(text: str, noise: bytes) -> None:
    for output in (text.encode(errors="replace"), noise, b"\0" * OUTPUT_BYTES, "é".encode() * OUTPUT_BYTES):
        kept = end_of(output)
        assert len(kept) <= OUTPUT_BYTES
        assert "\0" not in kept.decode()
        assert end_of(kept) == kept
    stripped = text.replace("\0", "").encode(errors="replace")
    assert stripped.endswith(end_of(stripped))


async def test_a_run_that_may_take_longer_is_not_reported_because_of_a_pause(recorder: Recorder) -> None:
    monitor = await recorder.register(**HOURLY, run_minutes=300)
    await recorder.beat(monitor, status="start")
    for tool in ("pause_monitor", "resume_monitor"):
        await recorder.call(tool, monitor_id=monitor["monitor_id"], secret=monitor["secret"])
    await recorder.pass_time(minutes=299)
    assert await recorder.sweep() == 0
    await recorder.pass_time(minutes=1)
    assert await recorder.sweep() == 1


async def test_a_success_ends_the_overdue_run_without_an_id_also_after_another_run(recorder: Recorder) -> None:
    monitor = await recorder.register(**HOURLY)
    await recorder.beat(monitor, status="start")
    await recorder.pass_time(minutes=5)
    assert await recorder.sweep() == 1
    for status, rid in (("start", "b"), ("ok", "b")):
        await recorder.beat(monitor, status=status, rid=rid)
    assert [run.result for run in await runs(recorder, monitor)] == ["ok", "overdue"]
    await recorder.beat(monitor)
    assert [run.result for run in await runs(recorder, monitor)] == ["ok", "ok"]
