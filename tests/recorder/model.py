"""A monitor as docs/beats.md and docs/schedules.md describe it, without the code: what the building is compared with.

Times are seconds since a noon. Only the table of states and events is the code's own, because the documentation shows that table.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from buildings.recorder.monitors.state_machine import BEATS, TRANSITIONS, Event, Mode

MINUTE = 60
TROUBLES: dict[str, str] = {"missed": "dead", "failed": "failed", "stuck": "stuck"}
HAS_DEADLINE, DOWN, UNWATCHED = ("up", "stuck"), ("missed", "failed"), ("paused", "asleep")


class Target(NamedTuple):
    """Which kinds of alerts go to a target, None for all, and how long a trouble must last first."""

    on: Collection[str] | None = None
    after: int | None = None

    def names(self, kind: str) -> bool:
        return self.on is None or kind in self.on


TARGETS = {
    "chat": Target(),
    "pager": Target(("dead", "failed", "stuck", "recovered", "reminder"), 20 * MINUTE),
    "log": Target(("failed", "recovered")),
}


@dataclass
class Options:
    """What register_monitor takes. `closed` is a window of maintenance; with `cron` a beat is expected every ten minutes by the clock."""

    period: int = 10 * MINUTE
    grace: int = 2 * MINUTE
    run: int | None = None
    failures: int = 1
    remind: int | None = None
    manual: bool = False
    stuck_after: int | None = None
    stuck_takeover: bool = False
    cron: bool = False
    closed: tuple[int, int] | None = None

    def is_closed(self, at: int) -> bool:
        return self.closed is not None and self.closed[0] <= at < self.closed[1]

    def opening(self, at: int) -> int:
        return self.closed[1] if self.closed is not None and self.is_closed(at) else at

    def expected_after(self, at: int) -> int:
        if self.cron:
            step = 10 * MINUTE
            first = at // step * step + step
            return next(time for time in range(first, first + 99 * step, step) if not self.is_closed(time))
        start = self.opening(at)
        if self.closed is None or not start < self.closed[0] <= start + self.period:
            return start + self.period
        return start + self.period + self.closed[1] - self.closed[0]  # only open time counts

    def deadline_after(self, expected: int, grace: int | None = None) -> int:
        start, grace = self.opening(expected), self.grace if grace is None else grace
        if self.closed is not None and start < self.closed[0] <= start + grace:
            return self.closed[1] + grace  # the whole grace from the opening on
        return start + grace

    def run_limit(self, start: int, next_in: int | None) -> int:
        if next_in is not None:
            return self.deadline_after(start + next_in)
        limit = start + (max(self.grace, MINUTE) if self.run is None else self.run)
        return self.deadline_after(limit) if self.is_closed(limit) else limit


@dataclass
class Run:
    """One run. `result` is None while it is open."""

    rid: str | None
    started: int | None = None
    limit: int | None = None
    ended: int | None = None
    result: str | None = None
    code: int | None = None


@dataclass
class Model:
    """The monitor, and what each target was sent: kind, reason, and since when."""

    options: Options
    at: int
    mode: Mode = "up"
    waiting: bool = True
    epoch: int = 0
    failures: int = 0
    fence: int = 0
    beats: int = 0
    runs: list[Run] = field(default_factory=list)
    run_since: int | None = None
    last_failure: str = "fail"
    progress: object = None
    times: int = 0
    muted_until: int = 0
    pending: bool = False
    ended_since: int = 0
    acknowledged: int | None = None
    reminded: int | None = None
    told: dict[str, bool] = field(default_factory=lambda: defaultdict(bool))
    sent: dict[str, list[tuple[str, str, int]]] = field(default_factory=lambda: {name: [] for name in TARGETS})

    def __post_init__(self) -> None:
        self.since = self.began = self.at
        self._begin()

    # what happens

    def beat(self, status: str | int, rid: str | None, output: str | None, next_in: int | None, progress: int | None) -> None:
        if progress is not None:
            self.times = self.times + 1 if progress == self.progress else 1
            self.progress = progress
        if status == "log":
            self._log(rid, output)
            return
        self.beats += 1
        is_failure = status == "fail" or (isinstance(status, int) and status > 0)
        self._follow_run(status, rid, output, next_in, is_failure=is_failure)
        self.waiting = False
        if status == "idle":
            self.progress, self.times = None, 0
        if self.mode == "paused" and self.options.manual:
            return
        event: Event = "fail" if is_failure else "ok" if status == 0 else status  # type: ignore[assignment]
        if is_failure:
            self.last_failure = "fail" if status == "fail" else f"exit code {status}"
            event = "fail" if self.failures + 1 >= self.options.failures else "strike"
        elif event == "ok" and self.options.stuck_after is not None and self.times >= self.options.stuck_after:
            event = "stall"
        self.apply(event, next_in)

    def takeover(self) -> bool:
        """Whether the work was free to take."""
        if self.state != "dead" and not (self.mode == "stuck" and self.options.stuck_takeover):
            return False
        self.apply("deadline")
        self.apply("takeover")
        for run in self._open:
            is_late = run.limit is not None and run.limit <= self.at
            run.result = run.result or ("overdue" if is_late else "unknown")
            run.ended = self.at
        self.run_since, self.progress, self.times = None, None, 0
        self.fence += 1
        return True

    def acknowledge(self) -> bool:
        if self.mode not in TROUBLES:
            return False
        self.acknowledged = self.acknowledged if self.acknowledged is not None else self.at
        return True

    def snooze(self, seconds: int) -> None:
        self.muted_until = self.at + seconds if seconds else 0
        self.pending |= seconds > 0 and self.mode in TROUBLES

    def update(self, period: int, failures: int) -> None:
        before = self.options.expected_after(self.began)
        changed = period != self.options.period
        self.options.period, self.options.failures = period, failures
        if not changed or self.mode not in HAS_DEADLINE or self.run_since is not None or self.at >= self.deadline:
            return
        if self.expected == before:
            self.expected = self.options.expected_after(self.began)
        earliest = self.options.deadline_after(self.at, max(self.options.grace, 30))  # nobody dies of a change
        self.deadline = max(self.options.deadline_after(self.expected), earliest)

    def sweep(self) -> None:
        if self.mode in HAS_DEADLINE:
            self.apply("deadline")
        if self.is_muted:
            return
        kind = TROUBLES.get(self.mode)
        if self.pending:
            self.pending = False
            if kind is not None and not self.told["chat"]:
                self._send(kind)
                self.reminded = self.at
            elif kind is not None and self.acknowledged is None:
                self._send("reminder")
                self.reminded = self.at
            elif kind is None and self.told["chat"]:
                self._send("recovered", "beat", self.ended_since)
        if kind is None or self.acknowledged is not None:
            return
        told_before = dict(self.told)
        for name, target in TARGETS.items():
            if target.after is not None and target.names(kind) and not self.told[name] and self.since + target.after <= self.at:
                self._send_to(name, kind)
        last = max(self.since, self.reminded or self.since)
        if self.options.remind is not None and last + self.options.remind <= self.at:
            self._send("reminder", among=[name for name, told in told_before.items() if told])
            self.reminded = self.at

    def apply(self, event: Event, next_in: int | None = None) -> None:
        step = TRANSITIONS.get((self.mode, event))
        if step is None or (event == "deadline" and self.at < self.deadline):
            return
        before, since = self.mode, self.since
        to: Mode = "up" if step.to == "idle" and next_in is not None else step.to
        if event in ("fail", "strike"):
            self.failures += 1
        elif to not in DOWN and event not in ("start", "stall"):
            self.failures = 0
        if to != before and not (before in DOWN and to in DOWN):
            self.since = self.deadline if event == "deadline" else self.at
        self.mode = to
        if step.new_epoch:
            self.epoch, self.acknowledged, self.reminded = self.epoch + 1, None, None
        self._move_deadline(event, next_in)
        if step.alert == "recovered":
            self._recovered("takeover" if event == "takeover" else "beat", since)
        elif step.alert is not None:
            self._trouble(step.alert)
        elif before in TROUBLES and to not in TROUBLES:  # its owner ended it
            self.pending = False
            self.told.clear()

    # its times

    def _begin(self) -> None:
        self.began, self.expected = self.at, self.options.expected_after(self.at)
        self.deadline = self.options.deadline_after(self.expected)

    def _move_deadline(self, event: Event, next_in: int | None) -> None:
        if event in ("deadline", "pause", "key_ended"):
            return
        expected, deadline = self.expected, self.deadline
        self._begin()
        limits = [run.limit for run in self._watched if run.limit is not None]
        if event in BEATS and limits:
            self.expected = self.deadline = min(limits)
        elif event in BEATS and next_in is not None:
            self.expected = self.at + next_in
            self.deadline = self.options.deadline_after(self.expected)
        elif event in ("resume", "key_renewed") and self.run_since is not None:  # a run that may take longer has its time
            self.expected, self.deadline = max(self.expected, expected), max(self.deadline, deadline)

    # its runs

    @property
    def _open(self) -> list[Run]:
        return [run for run in self.runs if run.ended is None]

    @property
    def _watched(self) -> list[Run]:
        return [run for run in self._open if run.result is None]

    def _follow_run(self, status: str | int, rid: str | None, output: str | None, next_in: int | None, *, is_failure: bool) -> None:
        for run in self._watched:
            if run.limit is not None and self.mode in HAS_DEADLINE:
                run.limit = max(run.limit, self.deadline)
            elif run.limit is not None and run.limit <= self.at:
                run.result = "overdue"
        run = next((run for run in self._open if run.rid == rid), None)
        if status == "start":
            if run is not None:
                run.ended, run.result = self.at, run.result or "unknown"
            self.runs.append(Run(rid, self.at, self.options.run_limit(self.at, next_in)))
        elif run is not None or is_failure or status == 0 or rid is not None or output is not None:
            if run is None:
                self.runs.append(run := Run(rid))
            run.ended, run.result = self.at, "fail" if is_failure else "ok"
            run.code = status if isinstance(status, int) else None
        watched = [run for run in self._open if run.result is None or run.rid is None]
        self.run_since = min((run.started for run in watched if run.started is not None), default=None)

    def _log(self, rid: str | None, output: str | None) -> None:
        if (output is not None or rid is not None) and not any(run.rid == rid for run in self._open):
            self.runs.append(Run(rid, ended=self.at, result="log"))

    def shown(self, run: Run) -> str:
        if run.result is not None:
            return run.result
        limit = max(run.limit or 0, self.deadline) if self.mode in HAS_DEADLINE else run.limit or 0
        return "overdue" if self.at >= limit else "running"

    # its alerts

    @property
    def is_muted(self) -> bool:
        return self.at < self.muted_until or self.options.is_closed(self.at)

    def _trouble(self, kind: str) -> None:
        self.pending = self.is_muted
        if not self.pending:
            self._send(kind)
            self.reminded = self.at if kind == "dead" else self.reminded

    def _recovered(self, reason: str, since: int) -> None:
        """Nobody hears of the end of a trouble that nobody was told of."""
        self.pending = self.is_muted and self.told["chat"]
        self.ended_since = since
        if not self.is_muted:
            self._send("recovered", reason, since)

    def _send(self, kind: str, reason: str | None = None, since: int | None = None, among: Collection[str] = TARGETS) -> None:
        for name, target in TARGETS.items():
            heard = self.told[name] if kind in ("recovered", "reminder") else target.after is None
            if name in among and heard and target.names(kind):
                self._send_to(name, kind, reason, since)
        if kind == "recovered":
            self.told.clear()

    def _send_to(self, name: str, kind: str, reason: str | None = None, since: int | None = None) -> None:
        self.told[name] = True
        self.sent[name].append((kind, reason or self._why(), self.since if since is None else since))

    def _why(self) -> str:
        if self.mode == "stuck":
            return "stuck"
        if self.mode == "missed":
            return "timeout" if self.run_since is None else "run"
        return f"{self.failures} failures in a row" if self.options.failures > 1 else self.last_failure

    # what is shown

    @property
    def state(self) -> str:
        if self.mode in (*UNWATCHED, "idle"):
            return "alive"
        if self.mode in DOWN or self.at >= self.deadline:
            return "dead"
        return "late" if self.at >= self.expected else "alive"

    def seen(self) -> dict[str, Any]:
        """What get_monitor and the row must show now."""
        no_deadline, dead = self.mode in (*UNWATCHED, "idle"), self.state == "dead"
        why = "fail" if self.mode == "failed" else "timeout" if self.run_since is None else "run"
        muted = max([time for time in (self.muted_until, self.options.opening(self.at)) if time > self.at], default=None)
        return {
            "state": self.state,
            "waiting": self.waiting,
            "idle": self.mode == "idle",
            "stuck": self.mode == "stuck",
            "paused": self.mode in UNWATCHED,
            "expected_at": None if no_deadline else self.expected,
            "deadline_at": None if no_deadline else self.deadline,
            "since": self.deadline if dead and self.mode == "up" else self.since,
            "reason": why if dead else None,
            "acknowledged_at": self.acknowledged if self.mode in TROUBLES else None,
            "muted_until": muted,
            "beats": self.beats,
            "fence": self.fence,
            "failures": self.failures,
            "open": len(self._open),
            "runs": [(run.rid, self.shown(run), run.code, run.started, run.ended) for run in self.runs[:-6:-1]],
        }
