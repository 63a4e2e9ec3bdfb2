"""The state machine by itself; test_walk.py compares the whole building with a model of it."""

from datetime import datetime, timedelta
from itertools import zip_longest
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from buildings.recorder.monitors.state_machine import (
    BEATS,
    DOWN,
    LEAST_GRACE,
    NO_RUNS,
    TRANSITIONS,
    WITH_DEADLINE,
    Event,
    Mode,
    MonitorState,
    OpenRuns,
    Schedule,
    apply_event,
    initial_state,
    reschedule,
    shown_state,
    uptime,
)
from campus.testing import Clock

NOW = Clock().time.replace(year=2026, month=8, day=21, hour=12, minute=0, second=0, microsecond=0)
SCHEDULE = Schedule(timedelta(minutes=10), timedelta(minutes=2))
MINUTE = timedelta(minutes=1)
SCHEDULES = st.builds(Schedule, st.timedeltas(MINUTE / 10, 90 * MINUTE), st.timedeltas(0 * MINUTE, 90 * MINUTE), st.none(), st.none())
TROUBLE = DOWN | {"stuck"}
EVENTS = st.lists(st.tuples(st.sampled_from(get_args(Event)), st.integers(0, 30 * 60)), max_size=30)


def test_every_transition_is_between_known_modes() -> None:
    for (mode, event), step in TRANSITIONS.items():
        assert mode in get_args(Mode)
        assert event in get_args(Event)
        assert step.to in get_args(Mode)
        assert step.new_epoch == ((step.to in TROUBLE and mode not in TROUBLE) or (mode, event) == ("missed", "stall")), (mode, event)
        assert (step.alert == "recovered") == (mode in TROUBLE and step.to in ("up", "idle") and event != "resume"), (mode, event)


def test_late_begins_after_the_period_and_dead_after_the_grace() -> None:
    state = initial_state(SCHEDULE, NOW)
    states = [shown_state(state, NOW + MINUTE * at) for at in (0, 9.99, 10, 11.99, 12, 60)]
    assert states == ["alive", "alive", "late", "late", "dead", "dead"]


@given(EVENTS, st.lists(st.none() | st.integers(0, 30 * 60), max_size=30))
def test_the_laws_hold_for_any_events(events: list[tuple[Event, int]], limits: list[int | None]) -> None:
    now, state, last_alert, raised = NOW, initial_state(SCHEDULE, NOW), None, set[tuple[int, str]]()
    for (event, seconds), limit in zip_longest(events, limits[: len(events)]):
        now += timedelta(seconds=seconds)
        runs = NO_RUNS if limit is None or event not in BEATS else OpenRuns(now, now + timedelta(seconds=limit))
        change = apply_event(state, event, SCHEDULE, now, runs=runs)
        after = change.state
        if change.alert is not None:
            assert (after.epoch, change.alert) not in raised, "an epoch has each kind of alert once: its alerts are unique"
            raised.add((after.epoch, change.alert))
        if event in BEATS and state.mode != "asleep":
            assert after.run_since == runs.since
            assert (after.deadline_at == runs.until) >= (runs.until is not None)
        if state.mode in TROUBLE and event in ("start", "strike", "fail", "stall", "deadline"):
            assert after.mode in TROUBLE, "only a success recovers"
        if event in ("start", "stall"):
            assert after.failures == state.failures, "neither ends a row of failures"
        if state.mode in DOWN and after.mode in DOWN and after.first_beat_at:
            assert (uptime(after, now) or 0) <= (uptime(state, now - timedelta(seconds=seconds)) or 1), "it is down throughout"
        assert after.epoch - state.epoch in (0, 1)
        assert after.epoch == state.epoch or after.mode in TROUBLE
        assert state.since <= after.since <= now
        assert (change.alert in ("dead", "failed")) <= (after.mode in DOWN)
        if change.alert == "recovered":
            assert last_alert in ("dead", "failed", "stuck")
        if after.mode == "up" and after.run_since is None:
            assert after.deadline_at == after.expected_at + SCHEDULE.grace
        if after.mode == "idle":
            assert event in ("idle", "done") or (state.mode == "idle" and after == state), "it begins with its event"
            assert shown_state(after, now + timedelta(days=9)) == "alive"
            assert apply_event(after, "deadline", SCHEDULE, now + timedelta(days=9)).alert is None
        if event == "idle" and state.mode != "missed":
            assert after.mode in ("idle", *({"failed", "asleep"} & {state.mode}))
        assert (after.first_beat_at is None) == (state.first_beat_at is None and event not in BEATS)
        assert after.first_beat_at == (state.first_beat_at or after.first_beat_at), "it never changes"
        share = uptime(after, now)
        assert (share is None) >= (after.first_beat_at is None)
        assert share is None or 0 <= share <= 1
        state, last_alert = after, change.alert or last_alert


def after_events(events: list[tuple[Event, int]], schedule: Schedule) -> tuple[MonitorState, datetime]:
    now, state = NOW, initial_state(schedule, NOW)
    for event, seconds in events:
        now += timedelta(seconds=seconds)
        state = apply_event(state, event, schedule, now).state
    return state, now


@given(EVENTS, st.integers(0, 3 * 60 * 60), st.lists(SCHEDULES, min_size=3, max_size=3, unique=True))
def test_a_new_schedule_counts_from_the_same_beginning_and_nobody_dies_of_it(
    events: list[tuple[Event, int]], seconds: int, schedules: list[Schedule]
) -> None:
    first, second, third = schedules
    state, now = after_events(events, first)
    now += timedelta(seconds=seconds)
    after = reschedule(state, first, second, now, unverified=False)
    assert after._replace(expected_at=state.expected_at, deadline_at=state.deadline_at) == state, "no other member changes"
    assert reschedule(state, first, first, now, unverified=False) == state
    if state.mode not in WITH_DEADLINE or state.run_since is not None or now >= state.deadline_at:
        assert after == state
        return
    assert after.expected_at == state.alive_at + second.period
    assert after.deadline_at == max(after.expected_at + second.grace, now + max(second.grace, LEAST_GRACE))
    assert shown_state(after, now) == ("late" if now >= after.expected_at else "alive")
    assert reschedule(after, second, third, now, unverified=False) == reschedule(state, first, third, now, unverified=False)
