"""The rules of beats: what a beat brings, which beats are refused, and what a recorded one changes: deadline, capsule, history.

Pure: a beat is applied to a LoadedMonitor in memory. sql.py loads monitors, stores them, and repeats the rules of plain beats
in one statement. The change of state itself is in monitors/state_machine.py.

A capsule is the state that an agent sends with a beat, as JSON, so that a replacement can continue its work. takeover.py hands it
to the owner and to a replacement.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import from_json, to_json

from buildings.recorder.alerts.raising import Notice
from buildings.recorder.beats.beat import Beat, BeatOutcome, Unstored
from buildings.recorder.beats.runs import Runs
from buildings.recorder.beats.sessions import Session, hear
from buildings.recorder.monitors.credentials import digest_matches
from buildings.recorder.monitors.muting import RECOVERED, announcement, mute_end
from buildings.recorder.monitors.options import MonitorOptions
from buildings.recorder.monitors.state_machine import (
    WITHOUT_DEADLINE,
    AppliedEvent,
    Event,
    Kind,
    MonitorState,
    Schedule,
    Status,
    Word,
    apply_event,
    event_of,
    shown_state,
)
from buildings.recorder.problems import seq_reused, stale_seq, too_many_beats
from campus.storage import EPOCH, MICROSECOND
from twins import unstorable_reason

BEATS_PER_MINUTE = 120
MAX_CAPSULE_BYTES = 32_768
LARGEST_BEAT = 8 * MAX_CAPSULE_BYTES
"""The bytes of a request: JSON may write each byte of a capsule as an escape of six, and has room for white space."""
CAPSULES_PER_MONITOR = 5
PREVIEW_CHARACTERS = 200
SHOWN_WITHOUT_KEY = 2_048
"""The bytes of the largest capsule that is kept for the page of a monitor without an owner: the last one, which nothing else returns."""
NULL = b"null"
BEATS_IN_HISTORY = 20
PAGES_KEPT = 10
"""Of the history, besides the one in the row of the monitor: together the last two hundred beats."""
MILLISECOND = timedelta(milliseconds=1)
WORDS: dict[int, Word] = {-1: "ok", -2: "start", -3: "fail", -4: "idle", -5: "log"}
NUMBERS: dict[Status, int] = {word: number for number, word in WORDS.items()}
ENTRY = struct.Struct("<qhi")
OLDER_BYTES = ENTRY.size * (BEATS_IN_HISTORY - 1)  # How much of a full history stays when a beat is added.
NO_RUN, LONGEST_RUN = -1, 2**31 - 1


@dataclass(slots=True)
class LoadedMonitor:
    """A monitor in memory, while the beats of one transaction are applied to it in their order.

    `stores_until` is when its owner's key expires, None without an owner. `new_capsules` are the capsules to store: slot, number,
    seq, time and JSON; `new_pages` those of its history. `last_capsule` is the capsule stored under `last_seq`,
    `last_is_null` whether the last capsule of all is null, and `newest` that capsule: each once a beat of the transaction needed it.
    """

    id: str
    secret_digest: bytes
    owner: str | None
    options: MonitorOptions
    schedule: Schedule
    state: MonitorState
    unverified: bool
    last_beat_at: datetime | None
    beats: int
    history: bytes
    minute: int
    minute_beats: int
    capsules: int
    last_seq: int | None
    progress: bytes | None
    unchanged: int
    session: Session
    fence: int
    followed_up: bool
    muted_until: datetime | None
    held: str | None
    held_since: datetime | None
    stores_until: datetime | None
    runs: Runs
    changed: bool = False
    new_pages: list[tuple[int, bytes]] = field(default_factory=list)
    new_capsules: list[tuple[int, int, int | None, datetime, bytes]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    last_capsule: bytes | None = None
    last_is_null: bool = False
    newest: bytes | None = None


def minute_of(beat: Beat) -> int:
    return int(beat.at.timestamp()) // 60


def apply_beat(monitor: LoadedMonitor | None, beat: Beat) -> BeatOutcome | Exception | None:
    """Apply a beat to its monitor; returns the outcome or a problem, None if the secret is wrong."""
    if not digest_matches(monitor.secret_digest if monitor else None, beat.secret_digest) or monitor is None:
        return None
    minute = minute_of(beat)
    beats_before = monitor.minute_beats if monitor.minute == minute else 0
    if beats_before >= BEATS_PER_MINUTE:
        return too_many_beats(beat.at, limit=BEATS_PER_MINUTE)
    if beat.capsule is not None and is_stale(beat.seq, monitor.last_seq):
        return stale_seq(beat.seq or 0, monitor.last_seq or 0)
    if repeats_seq(beat, monitor) and not _is_retry(beat, monitor):
        return seq_reused(beat.seq or 0)
    monitor.minute = minute
    monitor.minute_beats = beats_before + 1
    return _apply(monitor, beat)


def repeats_seq(beat: Beat, monitor: LoadedMonitor | None) -> bool:
    """Whether its capsule has the seq of the last stored one: it is a retry, or another capsule under a used seq."""
    return beat.capsule is not None and beat.seq is not None and monitor is not None and beat.seq == monitor.last_seq


def may_be_plain(beat: Beat) -> bool:
    """Whether a beat changes nothing but times if its monitor is up: it ends no run that it names or tells of."""
    return beat.status == "ok" and beat.capsule is None and beat.rid is None and beat.output is None and beat.host is None


def _is_retry(beat: Beat, monitor: LoadedMonitor) -> bool:
    return isinstance(beat.capsule, bytes) and monitor.last_capsule is not None and is_same(beat.capsule, monitor.last_capsule)


def _apply(monitor: LoadedMonitor, beat: Beat) -> BeatOutcome:
    before = monitor.state
    beat, meant = _heard(monitor, beat)
    event = event_for(monitor, beat, meant)
    run = monitor.runs.follow(beat, before, monitor.schedule)
    open_runs = monitor.runs.watched
    if event is None:
        change = AppliedEvent(_beaten(before, beat, meant)._replace(run_since=open_runs.since))
    else:
        change = apply_event(before, event, monitor.schedule, beat.at, next_in=beat.next_in, runs=open_runs)
    monitor.state = change.state
    monitor.changed = True
    alert = _announced(monitor, before, change.alert, beat)
    if beat.status != "log" and (meant is not None or beat.host is None):  # which is no sign of life: it is kept with the runs
        _count(monitor, beat, run)
    return BeatOutcome(
        shown_state(change.state, beat.at),
        None if change.state.mode in WITHOUT_DEADLINE else change.state.deadline_at,
        monitor.fence,
        _store_capsule(monitor, beat),
        owned=monitor.owner is not None,
        asleep=change.state.mode == "asleep",
        alert=alert,
        stuck=change.state.mode == "stuck",
    )


def _beaten(state: MonitorState, beat: Beat, meant: Event | None) -> MonitorState:
    """A state that no beat changes, after one: the first beat ends the waiting, also in a pause that only its owner ends."""
    if meant is None or state.first_beat_at is not None:
        return state
    return state._replace(first_beat_at=beat.at, down=timedelta(0), still=timedelta(0))


def _heard(monitor: LoadedMonitor, beat: Beat) -> tuple[Beat, Event | None]:
    """A beat with the status that it has for its monitor, and what it means; of a host's event that changes nothing, no text is stored."""
    if beat.host is None:
        return beat, event_of(beat.status)
    is_dead = shown_state(monitor.state, beat.at) == "dead"
    monitor.session, status, event = hear(monitor.session, beat.host, monitor.state.mode, is_dead=is_dead)
    next_in = beat.next_in if status == "idle" or monitor.session.background else None
    beat = beat._replace(status=status, next_in=next_in, rid=None if status == "log" else beat.rid)
    return (beat if event is not None else beat._replace(capsule=None)), event


def _count(monitor: LoadedMonitor, beat: Beat, run: timedelta | None) -> None:
    monitor.history = with_beat(monitor.history, beat.at, beat.status, run)
    monitor.last_beat_at = beat.at
    monitor.beats += 1
    monitor.unverified = False
    if monitor.beats % BEATS_IN_HISTORY == 0:
        monitor.new_pages.append((page_slot(monitor.beats), monitor.history))


def event_for(monitor: LoadedMonitor, beat: Beat, event: Event | None) -> Event | None:
    """What a beat means to its monitor; None for one that changes nothing: a log, or one during a pause that only its owner ends.

    An agent is stuck if it reports the same progress, or calls one tool with the same arguments, too often in a row.
    """
    options = monitor.options
    if beat.progress is not None:
        monitor.unchanged = monitor.unchanged + 1 if beat.progress == monitor.progress else 1
        monitor.progress = beat.progress
    if event in ("idle", "done"):
        monitor.progress, monitor.unchanged = None, 0
    if monitor.state.mode == "paused" and options.manual_resume:
        return None
    if event == "fail" and monitor.state.failures + 1 < options.alert_after_failures:
        return "strike"
    is_stuck = options.stuck_after is not None and max(monitor.unchanged, monitor.session.repeats) >= options.stuck_after
    return "stall" if event == "ok" and is_stuck else event


def _announced(monitor: LoadedMonitor, before: MonitorState, kind: Kind | None, beat: Beat) -> Kind | None:
    """Raise the alert of a change, or hold it while the monitor is muted; returns the one that was raised."""
    if kind is None:
        return None
    is_muted = mute_end(monitor.muted_until, monitor.options.calendar, beat.at) is not None
    alert, monitor.held = announcement(kind, held=monitor.held, before=before.mode, is_muted=is_muted)
    monitor.held_since = before.since if monitor.held == RECOVERED else None
    if alert is not None:
        monitor.notices.append(_notice(monitor, before, alert, beat))
    return alert


def failure_in_words(status: Status, failures: int, options: MonitorOptions) -> str:
    """The reason of an alert of kind `failed`: the last status, or how many failures raised it."""
    if options.alert_after_failures > 1:
        return f"{failures} failures in a row"
    return "fail" if isinstance(status, str) else f"exit code {status}"


def _notice(monitor: LoadedMonitor, before: MonitorState, kind: Kind, beat: Beat) -> Notice:
    recovered = kind == "recovered"
    reason = "beat" if recovered else "stuck" if kind == "stuck" else failure_in_words(beat.status, monitor.state.failures, monitor.options)
    return Notice(
        monitor_id=monitor.id,
        epoch=monitor.state.epoch,
        kind=kind,
        at=beat.at,
        since=before.since if recovered else monitor.state.since,
        until=max(beat.at, before.since) if recovered else None,  # a beat may arrive before a deadline and be recorded after it
        reason=reason,
        last_beat_at=beat.at,
    )


def _store_capsule(monitor: LoadedMonitor, beat: Beat) -> bool:
    """Store the beat's capsule if a valid key owns the monitor; returns whether it is stored now.

    Some clients send null for every argument that they leave out. So of several nulls in a row only one is stored. Of what the hooks of
    one session send in a row, only the last is: it must not push out the capsules that an agent sent itself.
    """
    capsule = beat.capsule
    number = monitor.capsules
    if monitor.owner is None and isinstance(capsule, bytes) and len(capsule) <= SHOWN_WITHOUT_KEY:
        monitor.new_capsules = [(0, 0, beat.seq, beat.at, capsule)]
    if not isinstance(capsule, bytes) or monitor.stores_until is None or beat.at >= monitor.stores_until:
        return False
    repeats_null = capsule == NULL and monitor.last_is_null
    if is_new(beat.seq, monitor.last_seq) and not (repeats_null and beat.seq is None):
        number -= repeats_null or (beat.replaces is not None and (monitor.newest or b"").startswith(beat.replaces))
        monitor.new_capsules.append((number % CAPSULES_PER_MONITOR, number, beat.seq, beat.at, capsule))
        monitor.capsules = number + 1
        monitor.last_is_null = capsule == NULL
        monitor.newest = capsule
        if beat.seq is not None:
            monitor.last_seq = beat.seq
            monitor.last_capsule = capsule
    return True


def capsule_json(capsule: Any) -> bytes | Unstored:
    if reason := unstorable_reason(capsule):
        return Unstored(reason)
    text = to_json(capsule)
    if len(text) > MAX_CAPSULE_BYTES:
        return Unstored(f"{len(text):,} bytes, the limit is {MAX_CAPSULE_BYTES:,}", is_too_large=True)
    return text


def is_same(text: bytes, other: bytes) -> bool:
    return text == other or _canonical(text) == _canonical(other)


def _canonical(text: bytes) -> str:
    return json.dumps(from_json(text), sort_keys=True)


def preview(text: bytes) -> str:
    shown = text.decode()
    return shown if len(shown) <= PREVIEW_CHARACTERS else f"{shown[: PREVIEW_CHARACTERS - 1]}…"


def is_stale(seq: int | None, last_seq: int | None) -> bool:
    return seq is not None and last_seq is not None and seq < last_seq


def is_new(seq: int | None, last_seq: int | None) -> bool:
    """Whether a capsule must be stored. One with the seq of the last stored one is a retry."""
    return seq is None or last_seq is None or seq > last_seq


@dataclass(frozen=True, slots=True)
class PastBeat:
    at: datetime
    status: Status
    run: timedelta | None


def with_beat(history: bytes, at: datetime, status: Status, run: timedelta | None) -> bytes:
    """The history with one more beat, at most 20 of 14 bytes each."""
    milliseconds = NO_RUN if run is None else min(run // MILLISECOND, LONGEST_RUN)
    return history[-OLDER_BYTES:] + entry_of((at - EPOCH) // MICROSECOND, status, milliseconds)


def entry_of(at: int, status: Status, run: int = NO_RUN) -> bytes:
    """The bytes of one beat: its time in microseconds since 1970, its status, and the run that it ended in milliseconds."""
    return ENTRY.pack(at, NUMBERS.get(status, status), run)


def page_slot(beats: int) -> int:
    """Where the history is stored of a monitor that has just had its twentieth, fortieth, … beat."""
    return beats // BEATS_IN_HISTORY % PAGES_KEPT


def past_beats(history: bytes) -> Iterator[PastBeat]:
    for start in range(len(history) - ENTRY.size, -1, -ENTRY.size):
        at, number, run = ENTRY.unpack_from(history, start)
        yield PastBeat(EPOCH + at * MICROSECOND, WORDS.get(number, number), None if run == NO_RUN else run * MILLISECOND)
