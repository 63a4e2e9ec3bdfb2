"""The states of a monitor and what leads from one to the next. Pure: every moment is an argument.

A monitor watches for beats. Each sign of life at L sets when the next is expected, L + period (or what the beat itself
says), and the deadline, a grace later.

    up       beats come: alive until the next is expected, late until the deadline, and dead from then on
    missed   the deadline passed, and the sweep has said so
    failed   the agent said itself that it failed
    paused   its owner wants no alerts; the next beat ends that
    asleep   its key ended a week ago: beats are noted, and only a renewal wakes it

TRANSITIONS is the whole of it. `late` is computed on reading and never stored. An epoch is one downtime: it is opened by
what takes a monitor down, and the alert that it has recovered belongs to it.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

Mode = Literal["up", "missed", "failed", "paused", "asleep"]
Event = Literal["ok", "start", "fail", "deadline", "takeover", "pause", "resume", "key_ended", "key_renewed"]
Kind = Literal["dead", "failed", "recovered"]
ShownState = Literal["alive", "late", "dead"]

DOWN: frozenset[Mode] = frozenset(("missed", "failed"))
UNWATCHED: frozenset[Mode] = frozenset(("paused", "asleep"))


class Step(NamedTuple):
    """Where an event leads, which alert it raises, and whether it opens an epoch."""

    to: Mode
    alert: Kind | None = None
    opens: bool = False


FAILS = Step("failed", "failed", opens=True)
RISES = Step("up", "recovered")
TRANSITIONS: Mapping[tuple[Mode, Event], Step] = {
    ("up", "ok"): Step("up"),
    ("up", "start"): Step("up"),
    ("up", "fail"): FAILS,
    ("up", "deadline"): Step("missed", "dead", opens=True),
    ("missed", "ok"): RISES,
    ("missed", "start"): RISES,
    ("missed", "fail"): Step("failed", "failed"),
    ("missed", "takeover"): RISES,
    ("failed", "ok"): RISES,
    ("failed", "start"): RISES,
    ("failed", "fail"): Step("failed"),
    ("failed", "takeover"): RISES,
    ("paused", "ok"): Step("up"),
    ("paused", "start"): Step("up"),
    ("paused", "fail"): FAILS,
    ("asleep", "ok"): Step("asleep"),
    ("asleep", "start"): Step("asleep"),
    ("asleep", "fail"): Step("asleep"),
    ("up", "pause"): Step("paused"),
    ("missed", "pause"): Step("paused"),
    ("failed", "pause"): Step("paused"),
    ("paused", "pause"): Step("paused"),
    ("up", "resume"): Step("up"),
    ("missed", "resume"): Step("up"),
    ("failed", "resume"): Step("up"),
    ("paused", "resume"): Step("up"),
    ("up", "key_ended"): Step("asleep"),
    ("missed", "key_ended"): Step("asleep"),
    ("failed", "key_ended"): Step("asleep"),
    ("paused", "key_ended"): Step("asleep"),
    ("asleep", "key_renewed"): Step("up"),
}
"""What is not here does not happen: `apply_event` leaves the monitor as it is."""

BEATS: frozenset[Event] = frozenset(("ok", "start", "fail"))


class Schedule(NamedTuple):
    """What was agreed at registration."""

    period: timedelta
    grace: timedelta


class MonitorState(NamedTuple):
    """How a monitor stands. A tuple, and not a dataclass: one is made for every beat, at a quarter of the cost.

    `since` is when its mode began; for a missed deadline that is the deadline. `alive_at` is the last sign of life: a
    beat, or whatever armed it. `failures` counts the failures in a row. `run_since` is when a run was begun that no beat
    has ended yet. `down` and `still` are how long it was down, and not watched, before `since`.
    """

    mode: Mode
    since: datetime
    alive_at: datetime
    expected_at: datetime
    deadline_at: datetime
    epoch: int = 0
    failures: int = 0
    run_since: datetime | None = None
    down: timedelta = timedelta(0)
    still: timedelta = timedelta(0)


class Change(NamedTuple):
    """What an event did: the new state, the alert that it raises, and how long the run took that it ended."""

    state: MonitorState
    alert: Kind | None = None
    run: timedelta | None = None


def initial_state(schedule: Schedule, now: datetime) -> MonitorState:
    """Armed at once: an agent that dies before its first beat is reported."""
    expected = now + schedule.period
    return MonitorState("up", now, now, expected, expected + schedule.grace)


def shown_state(state: MonitorState, now: datetime) -> ShownState:
    """The interface's word for it, at this moment; a monitor that is not watched counts as alive."""
    if state.mode in UNWATCHED:
        return "alive"
    if state.mode in DOWN or now >= state.deadline_at:
        return "dead"
    return "late" if now >= state.expected_at else "alive"


def apply_event(state: MonitorState, event: Event, schedule: Schedule, now: datetime, *, next_in: timedelta | None = None) -> Change:
    """What becomes of a monitor by an event at `now`; `next_in` is how soon a beat says that the next will come."""
    step = TRANSITIONS.get((state.mode, event))
    if step is None or (event == "deadline" and now < state.deadline_at):
        return Change(state)
    since = _since(state, step, event, now)
    down, still = _passed(state, since, now) if since is not state.since else (state.down, state.still)
    run = now - state.run_since if event in ("ok", "fail") and state.run_since else None
    alive, expected, deadline = _armed(state, event, schedule, now, next_in)
    after = MonitorState(
        step.to,
        since,
        alive,
        expected,
        deadline,
        state.epoch + step.opens,
        state.failures + 1 if event == "fail" else state.failures if event == "deadline" else 0,
        now if event == "start" else None if event in ("ok", "fail", "takeover") else state.run_since,
        down,
        still,
    )
    return Change(after, step.alert, run)


def _since(state: MonitorState, step: Step, event: Event, now: datetime) -> datetime:
    """A downtime goes on when a failure is reported within it."""
    if step.to == state.mode or (state.mode in DOWN and step.to in DOWN):
        return state.since
    return state.deadline_at if event == "deadline" else now


def _passed(state: MonitorState, since: datetime, now: datetime) -> tuple[timedelta, timedelta]:
    """The time that the mode which ends has lasted, added to where it belongs."""
    lasted = max(since - state.since, timedelta(0))
    if state.mode in DOWN:
        return state.down + lasted, state.still
    if state.mode in UNWATCHED:
        return state.down, state.still + lasted
    return state.down, state.still


def _armed(
    state: MonitorState, event: Event, schedule: Schedule, now: datetime, next_in: timedelta | None
) -> tuple[datetime, datetime, datetime]:
    """The last sign of life, when the next is expected, and the deadline."""
    if event in ("deadline", "pause", "key_ended"):
        return state.alive_at, state.expected_at, state.deadline_at
    expected = now + (schedule.period if next_in is None else next_in)
    return now, expected, expected + schedule.grace


def downtime(state: MonitorState, now: datetime) -> timedelta | None:
    """How long it has been down; None when it is not."""
    return now - state.since if state.mode in DOWN else None


def uptime(state: MonitorState, *, registered_at: datetime, now: datetime) -> float | None:
    """The share of the watched time that it was not down, 0 to 1; None before any time has passed."""
    down, still = _passed(state, now, now)
    watched = now - registered_at - still
    return max(0.0, 1 - down / watched) if watched > timedelta(0) else None
