"""The state machine of a monitor: how beats, passed deadlines and outages change its state, and how its deadline is computed.

Pure: every time is an argument. A beat, a takeover or a resume sets when the next beat is expected, one period later or at the
time that the beat announces, and the deadline, one grace after that; `reschedule` moves both when the schedule is changed. A
monitor is in one of six modes:

    up       beats arrive: shown as alive until the next is expected, as late until the deadline, as dead from then on
    idle     its agent reported that it waits for its user: shown as alive, without a deadline, until a beat that means work
    missed   the deadline has passed and the sweep has raised the alert: shown as dead
    failed   the agent reported a failure: shown as dead
    paused   its owner suppressed its alerts; the next beat ends this mode
    asleep   its key expired a week ago: beats are counted, and only a renewed key ends this mode

TRANSITIONS has every change of mode. `late` is never stored. An epoch is one downtime: it begins when a monitor goes down, and
the alert of the recovery has the same number. The deadlines hold from the registration on, so that an agent that never starts is
reported; but the uptime counts from the first beat, because nobody knows of anything before it.

SQL repeats three of these rules, to change many rows at once. A test compares each with the function here, row by row:

    apply_event(…, "ok") while up   beats.sql.RECORD_BEATS     tests/recorder/test_bulk_beats.py
    apply_event(…, "deadline")      sweep.sweep                 tests/recorder/test_sweep.py
    deadline_after_outage           sweep.move_deadlines        tests/recorder/test_sweep.py
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

Mode = Literal["up", "idle", "missed", "failed", "paused", "asleep"]
Event = Literal["ok", "start", "idle", "fail", "deadline", "takeover", "pause", "resume", "key_ended", "key_renewed"]
Word = Literal["ok", "start", "idle", "fail"]
Status = Word | int  # What a beat reports: a word, or an exit code from 0 to 255.
Kind = Literal["dead", "failed", "recovered"]
ShownState = Literal["alive", "late", "dead"]

DOWN: frozenset[Mode] = frozenset(("missed", "failed"))
UNWATCHED: frozenset[Mode] = frozenset(("paused", "asleep"))
WITHOUT_DEADLINE: frozenset[Mode] = UNWATCHED | {"idle"}
BEATS: frozenset[Event] = frozenset(("ok", "start", "idle", "fail"))


class Transition(NamedTuple):
    """The mode that an event leads to, the alert that it raises, and whether a new epoch begins."""

    to: Mode
    alert: Kind | None = None
    new_epoch: bool = False


FAILS = Transition("failed", "failed", new_epoch=True)
RECOVERS = Transition("up", "recovered")
TRANSITIONS: Mapping[tuple[Mode, Event], Transition] = {
    ("up", "ok"): Transition("up"),
    ("up", "start"): Transition("up"),
    ("up", "idle"): Transition("idle"),
    ("up", "fail"): FAILS,
    ("up", "deadline"): Transition("missed", "dead", new_epoch=True),
    ("idle", "ok"): Transition("up"),
    ("idle", "start"): Transition("up"),
    ("idle", "idle"): Transition("idle"),
    ("idle", "fail"): FAILS,
    ("missed", "ok"): RECOVERS,
    ("missed", "start"): RECOVERS,
    ("missed", "idle"): Transition("idle", "recovered"),
    ("missed", "fail"): Transition("failed", "failed"),
    ("missed", "takeover"): RECOVERS,
    ("failed", "ok"): RECOVERS,
    ("failed", "start"): RECOVERS,
    ("failed", "idle"): Transition("failed"),
    ("failed", "fail"): Transition("failed"),
    ("failed", "takeover"): RECOVERS,
    ("paused", "ok"): Transition("up"),
    ("paused", "start"): Transition("up"),
    ("paused", "idle"): Transition("idle"),
    ("paused", "fail"): FAILS,
    ("asleep", "ok"): Transition("asleep"),
    ("asleep", "start"): Transition("asleep"),
    ("asleep", "idle"): Transition("asleep"),
    ("asleep", "fail"): Transition("asleep"),
    ("up", "pause"): Transition("paused"),
    ("idle", "pause"): Transition("paused"),
    ("missed", "pause"): Transition("paused"),
    ("failed", "pause"): Transition("paused"),
    ("paused", "pause"): Transition("paused"),
    ("up", "resume"): Transition("up"),
    ("idle", "resume"): Transition("up"),
    ("missed", "resume"): Transition("up"),
    ("failed", "resume"): Transition("up"),
    ("paused", "resume"): Transition("up"),
    ("up", "key_ended"): Transition("asleep"),
    ("idle", "key_ended"): Transition("asleep"),
    ("missed", "key_ended"): Transition("asleep"),
    ("failed", "key_ended"): Transition("asleep"),
    ("paused", "key_ended"): Transition("asleep"),
    ("asleep", "key_renewed"): Transition("up"),
}
"""A pair that is not listed changes nothing. Waiting for a user mends no failure: a monitor that failed stays so until ok or start."""

TICK_EVERY = timedelta(seconds=5)  # How often the sweep writes a tick, the proof that the recorder is running.
LONGEST_GAP = 3 * TICK_EVERY  # The longest time between two ticks of a busy recorder; a longer time is an outage.
SHORT_OUTAGE = timedelta(seconds=120)  # The longest outage that the retries of the cron command outlast.
LEAST_GRACE = timedelta(seconds=30)
"""The least time that an agent has for its beat after a short outage, or after its schedule was changed."""


class Schedule(NamedTuple):
    """How often a monitor's beats are due: the longest time between two, and the time between a missed beat and the alert."""

    period: timedelta
    grace: timedelta


class MonitorState(NamedTuple):
    """The stored state of a monitor; the names are columns. A tuple, because each beat makes one at a quarter of a dataclass's cost.

    `since` is when its mode began; for a missed deadline that is the deadline. `alive_at` is when the current period began:
    with a beat, a registration, a takeover or a resume. `failures` counts the failures in a row. `run_since` is the start of
    a run that no beat has ended yet. `down` and `still` are how long it was down, and not watched, from `first_beat_at` to `since`.
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
    first_beat_at: datetime | None = None


class AppliedEvent(NamedTuple):
    state: MonitorState
    alert: Kind | None = None
    run: timedelta | None = None


def event_of(status: Status) -> Event:
    return status if isinstance(status, str) else "ok" if status == 0 else "fail"


def initial_state(schedule: Schedule, now: datetime) -> MonitorState:
    """The state at registration. The first period begins at once, so that an agent that dies before its first beat is reported."""
    expected = now + schedule.period
    return MonitorState("up", now, now, expected, expected + schedule.grace)


def shown_state(state: MonitorState, now: datetime) -> ShownState:
    """The state at `now` as tools show it. A monitor without a deadline is shown as alive."""
    if state.mode in WITHOUT_DEADLINE:
        return "alive"
    if state.mode in DOWN or now >= state.deadline_at:
        return "dead"
    return "late" if now >= state.expected_at else "alive"


def state_in_a_word(state: MonitorState, now: datetime) -> str:
    """The state at `now` for people, where no other field stands beside it: an alive monitor's word says what that means."""
    if (shown := shown_state(state, now)) != "alive":
        return shown
    if state.mode in UNWATCHED:
        return "paused"
    return "waiting" if state.first_beat_at is None else "idle" if state.mode == "idle" else "alive"


def apply_event(state: MonitorState, event: Event, schedule: Schedule, now: datetime, *, next_in: timedelta | None = None) -> AppliedEvent:
    """The monitor after an event at `now`, with its new deadline. `next_in` of a beat replaces the period once; an idle agent that
    sends it has a deadline, as one that is up."""
    transition = TRANSITIONS.get((state.mode, event))
    if transition is None or (event == "deadline" and now < state.deadline_at):
        return AppliedEvent(state)
    if transition.to == "idle" and next_in is not None:
        transition = transition._replace(to="up")
    since = _mode_began_at(state, transition, event, now)
    down, still = _down_and_still(state, since) if since is not state.since else (state.down, state.still)
    first_beat_at = state.first_beat_at
    if first_beat_at is None and event in BEATS:
        first_beat_at, down, still = now, timedelta(0), timedelta(0)
    run = max(now - state.run_since, timedelta(0)) if event in ("ok", "idle", "fail") and state.run_since else None
    alive, expected, deadline = _deadline_after(state, event, schedule, now, next_in)
    after = MonitorState(
        transition.to,
        since,
        alive,
        expected,
        deadline,
        state.epoch + transition.new_epoch,
        _failures_after(state, transition, event),
        _run_since(state, event, now),
        down,
        still,
        first_beat_at,
    )
    return AppliedEvent(after, transition.alert, run)


def _failures_after(state: MonitorState, transition: Transition, event: Event) -> int:
    if event == "fail":
        return state.failures + 1
    return state.failures if transition.to in DOWN else 0


def _run_since(state: MonitorState, event: Event, now: datetime) -> datetime | None:
    if event == "start":
        return now
    return None if event in ("ok", "idle", "fail", "takeover") else state.run_since


def _mode_began_at(state: MonitorState, transition: Transition, event: Event, now: datetime) -> datetime:
    """A failure that is reported during a downtime continues that downtime."""
    if transition.to == state.mode or (state.mode in DOWN and transition.to in DOWN):
        return state.since
    return state.deadline_at if event == "deadline" else now


def _down_and_still(state: MonitorState, since: datetime) -> tuple[timedelta, timedelta]:
    """How long the monitor was down and not watched from its first beat until `since`, the current mode included."""
    lasted = max(since - max(state.since, state.first_beat_at or state.since), timedelta(0))
    if state.mode in DOWN:
        return state.down + lasted, state.still
    if state.mode in UNWATCHED:
        return state.down, state.still + lasted
    return state.down, state.still


def _deadline_after(
    state: MonitorState, event: Event, schedule: Schedule, now: datetime, next_in: timedelta | None
) -> tuple[datetime, datetime, datetime]:
    """When the period begins, when the next beat is expected, and the deadline: one grace later."""
    if event in ("deadline", "pause", "key_ended"):
        return state.alive_at, state.expected_at, state.deadline_at
    expected = now + (schedule.period if next_in is None else next_in)
    return now, expected, expected + schedule.grace


def reschedule(state: MonitorState, before: Schedule, after: Schedule, now: datetime, *, unverified: bool) -> MonitorState:
    """The monitor after its schedule was changed at `now`. Only one that is up, and not overdue, gets other times.

    The new period began when the current one did. But a time that the last beat announced stays, as does one that moved with the
    clock: then the new period begins with the next beat. Nobody dies of the change: the deadline is at least one grace away, and
    LEAST_GRACE. While a beat may be lost in an outage (`unverified`), the deadline comes no earlier than before.
    """
    if after == before or state.mode != "up" or now >= state.deadline_at:
        return state
    follows_period = state.expected_at == state.alive_at + before.period
    expected = state.alive_at + after.period if follows_period else state.expected_at
    deadline = max(expected + after.grace, now + max(after.grace, LEAST_GRACE))
    return state._replace(expected_at=expected, deadline_at=max(deadline, state.deadline_at) if unverified else deadline)


def uptime(state: MonitorState, now: datetime) -> float | None:
    """The share of the watched time since its first beat in which it was not down, 0 to 1; None if it was watched for no time."""
    if state.first_beat_at is None:
        return None
    down, still = _down_and_still(state, now)
    watched = now - state.first_beat_at - still
    return max(0.0, 1 - down / watched) if watched > timedelta(0) else None


class Outage(NamedTuple):
    """An outage of the recorder itself, from the last tick before it to the first one after it.

    The process was down or suspended, the database accepted no writes, or the clock jumped. Beats that were sent in this time are
    lost, unless their sender retried.
    """

    start: datetime
    end: datetime

    @property
    def is_short(self) -> bool:
        """Whether the retries of the cron command outlast the outage."""
        return self.end - self.start <= SHORT_OUTAGE


def outage_between(last_tick: datetime | None, now: datetime) -> Outage | None:
    if last_tick is None or now - last_tick <= LONGEST_GAP:
        return None
    return Outage(last_tick, now)


def deadline_after_outage(
    outage: Outage, *, expected_at: datetime, deadline_at: datetime, period: timedelta, grace: timedelta
) -> tuple[datetime, bool]:
    """The deadline after an outage of a monitor that is up, and whether it is unverified: the expected beat may be lost.

    After a short outage there is time for the retries. After a longer one, a beat that was sent in this time counts as lost, and
    the deadline is that of the next beat.
    """
    if outage.is_short:
        return max(deadline_at, outage.end + max(grace, LEAST_GRACE)), False
    if expected_at - grace > outage.end:
        return deadline_at, False
    return max(deadline_at, outage.end + period + grace), True
