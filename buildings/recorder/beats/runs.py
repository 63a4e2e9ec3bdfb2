"""Runs: each piece of work that a monitor's beats report, with its start, end, result and the end of its output. Pure.

A start opens a run; the next ok, fail, exit code or idle with the same `rid` ends it, where no `rid` is one too. So runs with ids may
overlap. A failure or an exit code, or any end with a `rid` or output, makes a run of its own where no start was reported; a plain ok
makes none. A log is kept with the open run of its `rid`, or in a row of its own.

While runs are open, the deadline of the monitor is the earliest of their limits. A run whose limit was reported is overdue: it waits
for its end, and no deadline follows from it any more.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from buildings.recorder.beats.beat import Beat
from buildings.recorder.monitors.state_machine import WITH_DEADLINE, MonitorState, OpenRuns, Schedule

RUNS_KEPT, KEPT_WITHOUT_KEY = 100, 10
MOST_OPEN = 10
OUTPUT_BYTES, BYTES_WITHOUT_KEY = 8_192, 2_048
"""Of a monitor that no key owns less is kept: anybody may register one."""
UNKNOWN: Final = "unknown"
OVERDUE: Final = "overdue"
LOG: Final = "log"
CONTINUATION = bytes(range(0x80, 0xC0))  # The bytes of a character in UTF-8, after its first.


class RunRow(NamedTuple):
    """A run as it is stored; the names are columns. `result` is null while it is open, and overdue once its limit was reported."""

    slot: int
    number: int
    rid: str | None
    started_at: datetime | None = None
    limit_at: datetime | None = None
    ended_at: datetime | None = None
    result: str | None = None
    exit_code: int | None = None
    session: str | None = None
    agent: str | None = None
    output: bytes | None = None


@dataclass(slots=True)
class Runs:
    """The runs of a monitor in memory: how many there ever were, those that no beat has ended, and those to store, each in its slot."""

    count: int
    owned: bool
    open: list[RunRow] = field(default_factory=list)
    changed: dict[int, RunRow] = field(default_factory=dict)

    @property
    def watched(self) -> OpenRuns:
        """Since when a run is open, and by when one must end, of those that are not overdue; and since when one that any end may end."""
        watched = [run for run in self.open if run.result is None and run.started_at and run.limit_at]
        nameless = [run for run in self.open if run.result == OVERDUE and run.rid is None]
        since = min((run.started_at for run in (*watched, *nameless) if run.started_at), default=None)
        return OpenRuns(since, min((run.limit_at for run in watched if run.limit_at), default=None))

    def follow(self, beat: Beat, state: MonitorState, schedule: Schedule) -> timedelta | None:
        """Open, end or describe the run that a beat is about; returns how long the one that it ended took."""
        rid = _stored(beat.rid)
        if beat.status == LOG:
            self._log(beat, rid)
            return None
        self._pass_limits(state, beat.at)
        run = next((run for run in self.open if run.rid == rid), None)
        if beat.status == "start":
            self._start(beat, rid, run, schedule)
            return None
        if run is None and beat.status in ("ok", "idle") and rid is None and beat.output is None:
            return None
        ended = self._new(rid) if run is None else run
        result = "ok" if beat.status in ("ok", "idle", 0) else "fail"
        code = beat.status if isinstance(beat.status, int) else None
        self._end(self._described(ended._replace(exit_code=code), beat), result, beat.at)
        return None if ended.started_at is None else max(beat.at - ended.started_at, timedelta(0))

    def _start(self, beat: Beat, rid: str | None, earlier: RunRow | None, schedule: Schedule) -> None:
        # a turn of an agent lasts while its events come, and what a subagent does is no deadline of its session
        has_limit = beat.agent is None and (beat.session is None or schedule.run is not None)
        limit = schedule.run_deadline(beat.at, beat.next_in) if has_limit else None
        replaced = [earlier] if earlier is not None else self.open[: len(self.open) - MOST_OPEN + 1]
        for run in replaced:
            self._end(run, run.result or UNKNOWN, beat.at)
        run = self._described(self._new(rid), beat)._replace(started_at=beat.at, limit_at=limit)
        self.open.append(run)
        self._change(run)

    def _log(self, beat: Beat, rid: str | None) -> None:
        run = next((run for run in self.open if run.rid == rid), None)
        if run is not None:
            described = self._described(run, beat)
            self.open[self.open.index(run)] = described
            self._change(described)
        elif beat.output is not None or rid is not None:
            self._end(self._described(self._new(rid), beat), LOG, beat.at)

    def _pass_limits(self, state: MonitorState, now: datetime) -> None:
        """Let an outage that moved the deadline move the limits too; those that passed while no deadline was watched are overdue."""
        for place, run in enumerate(self.open):
            if run.result is not None or run.limit_at is None:
                continue
            if state.mode in WITH_DEADLINE and state.deadline_at > run.limit_at:
                self.open[place] = run._replace(limit_at=state.deadline_at)
            elif state.mode not in WITH_DEADLINE and run.limit_at <= now:
                self.open[place] = run._replace(result=OVERDUE)
            if self.open[place] is not run:
                self._change(self.open[place])

    def _new(self, rid: str | None) -> RunRow:
        self.count += 1
        slot = (self.count - 1) % (RUNS_KEPT if self.owned else KEPT_WITHOUT_KEY)
        self.open = [run for run in self.open if run.slot != slot]
        return RunRow(slot, self.count - 1, rid)

    def _end(self, run: RunRow, result: str, at: datetime) -> None:
        self.open = [other for other in self.open if other.number != run.number]
        self._change(run._replace(ended_at=at, result=result))

    def _described(self, run: RunRow, beat: Beat) -> RunRow:
        output = run.output
        if beat.output is not None:
            output = end_of((output or b"") + beat.output, OUTPUT_BYTES if self.owned else BYTES_WITHOUT_KEY)
        return run._replace(output=output, session=_stored(beat.session) or run.session, agent=_stored(beat.agent) or run.agent)

    def _change(self, run: RunRow) -> None:
        self.changed[run.slot] = run


def end_of(output: bytes, most: int = OUTPUT_BYTES) -> bytes:
    """The last bytes of an output that are stored: whole characters in UTF-8, without NUL, which no database stores as text."""
    text = _tail(output, most).decode(errors="replace").replace("\0", "\ufffd")
    return _tail(text.encode(), most)


def _tail(output: bytes, most: int) -> bytes:
    return output if len(output) <= most else output[-most:].lstrip(CONTINUATION)


def _stored(text: str | None) -> str | None:
    return None if text is None else text.replace("\0", "\ufffd")
