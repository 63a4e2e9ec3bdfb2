"""The state machine of a monitor: how beats, passed deadlines and outages change its state, and how its deadline is computed.

Pure: every time is an argument. A beat, a takeover or a resume sets when the next beat is expected, one period later or at the
time that the beat announces, and the deadline, one grace after that; `reschedule` moves both when the schedule is changed. While
runs are open, both are the earliest end of the longest time that one of them may take (beats.runs). A monitor is in one of seven modes:

    up       beats arrive: shown as alive until the next is expected, as late until the deadline, as dead from then on
    idle     its agent reported that it waits for its user: shown as alive, without a deadline, until a beat that means work
    stuck    beats arrive, and report no progress: shown as alive and stuck until the deadline, as dead from then on
    missed   the deadline has passed and the sweep has raised the alert: shown as dead
    failed   the agent reported a failure: shown as dead
    paused   its owner suppressed its alerts; the next beat ends this mode, or only its owner where the monitor's options say so
    asleep   its key expired a week ago: beats are counted, and only a renewed key ends this mode

Only a success recovers: a run that starts does not, nor one that fails. TRANSITIONS has every change of mode, by these events:

    ok           a success: the word, or the exit code 0
    start        a run began, which mends nothing
    idle         the agent waits for its user or for work
    done         a turn of an agent ended well, and it waits for its user
    fail         a failure: the word, or another exit code
    strike       a failure, of fewer in a row than `alert_after_failures` asks for
    stall        a beat with the `progress`, or the tool call, that came `stuck_after` times in a row
    deadline     the deadline passed: no beat came in time, or a run did not end
    takeover     another agent has the work now
    pause        the owner suppressed the alerts, or the session of a host ended
    resume       the owner let the deadline run again
    key_ended    the key that owns the monitor ended a week ago
    key_renewed  that key was renewed

`late` is never stored. An epoch is one trouble: it begins when a monitor goes down or is stuck, has each kind of alert at most once, and
the alert of the recovery has the same number. The deadlines hold from the registration on, so that an agent that never starts is
reported; but the uptime counts from the first beat, because nobody knows of anything before it.

SQL repeats three of these rules, to change many rows at once. A test compares each with the function here, row by row:

    apply_event(…, "ok") while up   beats.sql.RECORD_BEATS     tests/recorder/test_bulk_beats.py
    apply_event(…, "deadline")      sweep.sweep                 tests/recorder/test_sweep.py
    deadline_after_outage           sweep.move_deadlines        tests/recorder/test_sweep.py
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from buildings.recorder.monitors.schedules import MonitorCalendar

Mode = Literal["up", "idle", "stuck", "missed", "failed", "paused", "asleep"]
Event = Literal[
    "ok", "start", "idle", "done", "fail", "strike", "stall", "deadline", "takeover", "pause", "resume", "key_ended", "key_renewed"
]
Word = Literal["ok", "start", "idle", "fail", "log"]
Status = Word | int  # What a beat reports: a word, or an exit code from 0 to 255. `log` is kept and changes nothing.
Kind = Literal["dead", "failed", "stuck", "recovered"]
ShownState = Literal["alive", "late", "dead"]
StateWord = Literal["dead", "stuck", "late", "waiting", "idle", "paused", "alive"]
"""The states in a word, the one that needs somebody first."""

DOWN: frozenset[Mode] = frozenset(("missed", "failed"))
WITH_DEADLINE: frozenset[Mode] = frozenset(("up", "stuck"))
AWAKE: frozenset[Mode] = frozenset(("up", "idle", "stuck", "missed", "failed", "paused"))
TROUBLES: Mapping[Mode, Kind] = {"missed": "dead", "failed": "failed", "stuck": "stuck"}
"""The modes in which something is wrong, with the alert of each."""
UNWATCHED: frozenset[Mode] = frozenset(("paused", "asleep"))
WITHOUT_DEADLINE: frozenset[Mode] = UNWATCHED | {"idle"}
BEATS: frozenset[Event] = frozenset(("ok", "start", "idle", "done", "fail", "strike", "stall"))


class Transition(NamedTuple):
    """The mode that an event leads to, the alert that it raises, and whether a new epoch begins."""

    to: Mode
    alert: Kind | None = None
    new_epoch: bool = False


FAILS = Transition("failed", "failed", new_epoch=True)
STALLS = Transition("stuck", "stuck", new_epoch=True)
RECOVERS = Transition("up", "recovered")
TRANSITIONS: Mapping[tuple[Mode, Event], Transition] = {
    ("up", "ok"): Transition("up"),
    ("up", "start"): Transition("up"),
    ("up", "idle"): Transition("idle"),
    ("up", "fail"): FAILS,
    ("up", "strike"): Transition("up"),
    ("up", "stall"): STALLS,
    ("up", "deadline"): Transition("missed", "dead", new_epoch=True),
    ("idle", "ok"): Transition("up"),
    ("idle", "start"): Transition("up"),
    ("idle", "idle"): Transition("idle"),
    ("idle", "fail"): FAILS,
    ("idle", "strike"): Transition("up"),
    ("idle", "stall"): STALLS,
    ("stuck", "ok"): RECOVERS,
    ("stuck", "start"): Transition("stuck"),
    ("stuck", "idle"): Transition("idle", "recovered"),
    ("stuck", "fail"): Transition("failed", "failed"),
    ("stuck", "strike"): Transition("stuck"),
    ("stuck", "stall"): Transition("stuck"),
    ("stuck", "deadline"): Transition("missed", "dead"),
    ("stuck", "takeover"): RECOVERS,
    ("missed", "ok"): RECOVERS,
    ("missed", "start"): Transition("missed"),
    ("missed", "idle"): Transition("idle", "recovered"),
    ("missed", "fail"): Transition("failed", "failed"),
    ("missed", "strike"): Transition("missed"),
    ("missed", "stall"): STALLS,  # a new epoch, because its deadline may pass again
    ("missed", "takeover"): RECOVERS,
    ("failed", "ok"): RECOVERS,
    ("failed", "start"): Transition("failed"),
    ("failed", "idle"): Transition("failed"),
    ("failed", "fail"): Transition("failed"),
    ("failed", "strike"): Transition("failed"),
    ("failed", "stall"): Transition("failed"),
    ("failed", "takeover"): RECOVERS,
    ("paused", "ok"): Transition("up"),
    ("paused", "start"): Transition("up"),
    ("paused", "idle"): Transition("idle"),
    ("paused", "fail"): FAILS,
    ("paused", "strike"): Transition("up"),
    ("paused", "stall"): STALLS,
    ("up", "done"): Transition("idle"),
    ("idle", "done"): Transition("idle"),
    ("paused", "done"): Transition("idle"),
    **{(mode, "done"): Transition("idle", "recovered") for mode in TROUBLES},
    **{("asleep", event): Transition("asleep") for event in BEATS},
    **{(mode, "pause"): Transition("paused") for mode in AWAKE},
    **{(mode, "resume"): Transition("up") for mode in AWAKE},
    **{(mode, "key_ended"): Transition("asleep") for mode in AWAKE},
    ("asleep", "key_renewed"): Transition("up"),
}
"""A pair that is not listed changes nothing. Waiting for a user mends no failure: a monitor that failed stays so until ok or done."""

TICK_EVERY = timedelta(seconds=5)  # How often the sweep writes a tick, the proof that the recorder is running.
LONGEST_GAP = 3 * TICK_EVERY  # The longest time between two ticks of a busy recorder; a longer time is an outage.
SHORT_OUTAGE = timedelta(seconds=120)  # The longest outage that the retries of the cron command outlast.
LEAST_RUN = timedelta(minutes=1)  # The least time that a run may take if the monitor's options do not say.
LEAST_GRACE = timedelta(seconds=30)
"""The least time that an agent has for its beat after a short outage, or after its schedule was changed."""


class Schedule(NamedTuple):
    """How often a monitor's beats are due: the longest time between two, and the time between a missed beat and the alert.

    `run` is the longest time that a run may take, by default the grace. A `calendar` says when instead of the period alone.
    """

    period: timedelta
    grace: timedelta
    run: timedelta | None = None
    calendar: MonitorCalendar | None = None

    def expected_after(self, moment: datetime) -> datetime:
        return moment + self.period if self.calendar is None else self.calendar.expected_after(moment, self.period)

    def deadline_after(self, expected: datetime, *, grace: timedelta | None = None) -> datetime:
        grace = self.grace if grace is None else grace
        return expected + grace if self.calendar is None else self.calendar.deadline_after(expected, grace)

    @property
    def names_times(self) -> bool:
        return self.calendar is not None and self.calendar.names_times

    def is_over_after(self, moment: datetime) -> bool:
        return self.calendar is not None and self.calendar.is_over_after(moment)

    def next_expected(self, state: "MonitorState", now: datetime) -> tuple[datetime, ...] | None:
        """The next times at which beats are expected; empty if nothing more is. None without a calendar that names times."""
        if self.calendar is None or not self.names_times:
            return None
        return () if state.mode == "idle" and self.is_over_after(now) else self.calendar.next_expected(now)

    @property
    def run_limit(self) -> timedelta:
        return max(self.grace, LEAST_RUN) if self.run is None else self.run

    def run_deadline(self, start: datetime, next_in: timedelta | None = None) -> datetime:
        """By when a run must end: a grace after what its start announced, or after the longest time that it may take."""
        if next_in is not None:
            return self.deadline_after(start + next_in)
        limit = start + self.run_limit
        return limit if self.calendar is None or self.calendar.closed_until(limit) is None else self.deadline_after(limit)


class MonitorState(NamedTuple):
    """The stored state of a monitor; the names are columns. A tuple, because each beat makes one at a quarter of a dataclass's cost.

    `since` is when its mode began; for a missed deadline that is the deadline. `alive_at` is when the current period began: with a
    beat, a registration, a takeover or a resume. `failures` counts the failures in a row. `run_since` is the start of the earliest run
    that is open and not overdue (beats.runs). `down` and `still` are how long it was down, and not watched, from `first_beat_at` to
    `since`.
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


class OpenRuns(NamedTuple):
    """Since when a run of a monitor is open, and by when one of them must end; None where none is open."""

    since: datetime | None = None
    until: datetime | None = None


NO_RUNS = OpenRuns()


class AppliedEvent(NamedTuple):
    state: MonitorState
    alert: Kind | None = None


def event_of(status: Status) -> Event | None:
    """What a beat with this status means; its monitor's options may make a `strike` or a `stall` of it. None for `log`."""
    if status == "log":
        return None
    return status if isinstance(status, str) else "ok" if status == 0 else "fail"


def stored_state(row: Any) -> MonitorState:
    """The state in a row of the table."""
    return MonitorState(*(getattr(row, name) for name in MonitorState._fields))


def initial_state(schedule: Schedule, now: datetime) -> MonitorState:
    """The state at registration. The first period begins at once, so that an agent that dies before its first beat is reported."""
    expected = schedule.expected_after(now)
    return MonitorState("up", now, now, expected, schedule.deadline_after(expected))


def due_at(state: MonitorState, *, followed_up: bool = False, is_held: bool = False) -> datetime | None:
    """When a sweep must look at a monitor that comes to this state: at its deadline, if it has one.

    At once if more follows, which the sweep then finds: when to remind or escalate, or when a mute ends (monitors.acting).
    """
    if is_held or (followed_up and state.mode in TROUBLES):
        return state.since
    return state.deadline_at if state.mode in WITH_DEADLINE else None


def shown_state(state: MonitorState, now: datetime) -> ShownState:
    """The state at `now` as tools show it. A monitor without a deadline is shown as alive."""
    if state.mode in WITHOUT_DEADLINE:
        return "alive"
    if state.mode in DOWN or now >= state.deadline_at:
        return "dead"
    return "late" if now >= state.expected_at else "alive"


def reason_of(state: MonitorState) -> str:
    """Why a monitor is dead, or would be."""
    return "fail" if state.mode == "failed" else "timeout" if state.run_since is None else "run"


def state_in_a_word(state: MonitorState, now: datetime) -> StateWord:
    """The state at `now` for people, where no other field stands beside it: an alive monitor's word says what that means."""
    if (shown := shown_state(state, now)) != "alive":
        return shown
    if state.mode in UNWATCHED:
        return "paused"
    if state.mode == "stuck":
        return "stuck"
    return "waiting" if state.first_beat_at is None else "idle" if state.mode == "idle" else "alive"


def apply_event(
    state: MonitorState, event: Event, schedule: Schedule, now: datetime, *, next_in: timedelta | None = None, runs: OpenRuns = NO_RUNS
) -> AppliedEvent:
    """The monitor after an event at `now`, with its new deadline.

    `next_in` of a beat replaces the period once; an idle agent that sends it has a deadline, as one that is up. `runs` are those that are
    open after a beat: while one is, it must end by its limit, whatever the period says. After a success no deadline runs if the calendar
    expects nothing more.
    """
    transition = TRANSITIONS.get((state.mode, event))
    if transition is None or (event == "deadline" and now < state.deadline_at):
        return AppliedEvent(state)
    if transition.to == "idle" and next_in is not None:
        transition = transition._replace(to="up")
    if event == "ok" and transition.to == "up" and next_in is None and runs.until is None and schedule.is_over_after(now):
        transition = transition._replace(to="idle")
    since = _mode_began_at(state, transition, event, now)
    down, still = _down_and_still(state, since) if since is not state.since else (state.down, state.still)
    first_beat_at = state.first_beat_at
    if first_beat_at is None and event in BEATS:
        first_beat_at, down, still = now, timedelta(0), timedelta(0)
    alive, expected, deadline = _deadline_after(state, event, schedule, now, next_in, runs.until if event in BEATS else None)
    after = MonitorState(
        transition.to,
        since,
        alive,
        expected,
        deadline,
        state.epoch + transition.new_epoch,
        _failures_after(state, transition, event),
        runs.since if event in BEATS else None if event == "takeover" else state.run_since,
        down,
        still,
        first_beat_at,
    )
    return AppliedEvent(after, transition.alert)


def _failures_after(state: MonitorState, transition: Transition, event: Event) -> int:
    """A run that starts, and a beat without progress, end no row of failures: of nightly failures the third is the third."""
    if event in ("fail", "strike"):
        return state.failures + 1
    return state.failures if transition.to in DOWN or event in ("start", "stall") else 0


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
    state: MonitorState, event: Event, schedule: Schedule, now: datetime, next_in: timedelta | None, until: datetime | None
) -> tuple[datetime, datetime, datetime]:
    """When the period begins, when the next beat is expected, and the deadline: one grace later."""
    if event in ("deadline", "pause", "key_ended"):
        return state.alive_at, state.expected_at, state.deadline_at
    if until is not None:
        return now, until, until
    expected = schedule.expected_after(now) if next_in is None else now + next_in
    deadline = schedule.deadline_after(expected)
    if event in ("resume", "key_renewed") and state.run_since is not None:  # an open run that may take longer still may
        return now, max(expected, state.expected_at), max(deadline, state.deadline_at)
    return now, expected, deadline


def reschedule(state: MonitorState, before: Schedule, after: Schedule, now: datetime, *, unverified: bool) -> MonitorState:
    """The monitor after its schedule was changed at `now`. Only one that is up, and not overdue, gets other times, and one whose beats
    were over, or that waits and gets a one-off deadline: it is up again.

    The new period began when the current one did. But a time that the last beat announced stays, as does one that moved with the
    clock: then the new period begins with the next beat. Nobody dies of the change: the deadline is at least one grace away, and
    LEAST_GRACE; and the times of a new calendar count from now on. While a beat may be lost in an outage (`unverified`), the
    deadline comes no earlier than before.
    """
    is_new = after.calendar != before.calendar
    if is_new and state.mode == "idle" and (before.is_over_after(state.alive_at) or after.is_over_after(now)):
        expected = after.expected_after(now)
        return state._replace(mode="up", since=now, alive_at=now, expected_at=expected, deadline_at=after.deadline_after(expected))
    if after == before or state.mode not in WITH_DEADLINE or state.run_since is not None or now >= state.deadline_at:
        return state
    follows_period = state.expected_at == before.expected_after(state.alive_at)
    expected = after.expected_after(state.alive_at) if follows_period else state.expected_at
    if is_new and after.names_times and now < state.expected_at:
        expected = after.expected_after(now)
    deadline = max(after.deadline_after(expected), after.deadline_after(now, grace=max(after.grace, LEAST_GRACE)))
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
    outage: Outage, schedule: Schedule, *, expected_at: datetime, deadline_at: datetime, lost_by: datetime | None = None
) -> tuple[datetime, bool]:
    """The deadline after an outage of a monitor that is up, and whether it is unverified: the expected beat may be lost.

    After a short outage there is time for the retries. After a longer one, a beat that was sent in this time counts as lost, and
    the deadline is that of the next beat. `lost_by` is the end of the outage in the time that `expected_at` has, if the clock jumped.
    """
    if outage.is_short:
        return max(deadline_at, schedule.deadline_after(outage.end, grace=max(schedule.grace, LEAST_GRACE))), False
    if expected_at - schedule.grace > (lost_by or outage.end):
        return deadline_at, False
    return max(deadline_at, schedule.deadline_after(schedule.expected_after(outage.end))), True
