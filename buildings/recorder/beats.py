"""Where beats are written: all waiting beats in one transaction, each with its state, history, capsule and alert.

On SQLite this runs in a thread: it uses nothing but its arguments.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, select

from buildings.recorder.alerts import Notice, raise_alerts
from buildings.recorder.beat import EPOCH, MICROSECOND, Beat, event_of, with_beat
from buildings.recorder.beat_sql import LoadedMonitor, load_last_capsules, load_monitors, record_plain_beats, store_monitors
from buildings.recorder.capsule import CAPSULES_PER_MONITOR, is_new, is_same, is_stale
from buildings.recorder.problems import monitor_not_found, seq_reused, stale_seq, taken_over, too_many_beats
from buildings.recorder.secrets import digest_matches
from buildings.recorder.state_machine import Kind, MonitorState, ShownState, apply_event, shown_state
from buildings.recorder.tables import RETIRED_SECRETS
from campus import among

BEATS_PER_MINUTE = 120


class BeatOutcome(NamedTuple):
    """What a beat did. `owned`: a key owns the monitor; `asleep`: that key has ended, so that no alerts are raised."""

    state: ShownState
    deadline_at: datetime
    capsule_stored: bool = False
    owned: bool = False
    asleep: bool = False
    alert: Kind | None = None


def record_beats(connection: Connection, beats: Sequence[Beat]) -> list[BeatOutcome | Exception]:
    """Record beats, those of one monitor in their order of arrival; returns what each did, or the problem it is refused with."""
    plain = record_plain_beats(connection, beats, limit=BEATS_PER_MINUTE)
    # of a monitor's beats it is the first that was recorded as plain
    results: list[BeatOutcome | Exception | None] = [_plain_outcome(plain.pop(beat.monitor_id, None)) for beat in beats]
    if others := [index for index, result in enumerate(results) if result is None]:
        for index, result in zip(others, record_one_by_one(connection, [beats[index] for index in others]), strict=True):
            results[index] = result
    return [result for result in results if result is not None]


def _plain_outcome(deadline: int | None) -> BeatOutcome | None:
    return None if deadline is None else BeatOutcome("alive", EPOCH + deadline * MICROSECOND)


def record_one_by_one(connection: Connection, beats: Sequence[Beat]) -> list[BeatOutcome | Exception]:
    """Record beats of any kind: load their monitors, apply one beat after the other, store the monitors."""
    ids = {beat.monitor_id for beat in beats}
    monitors = load_monitors(connection, ids)
    if repeated := {beat.monitor_id for beat in beats if _repeats_seq(beat, monitors.get(beat.monitor_id))}:
        load_last_capsules(connection, [monitors[name] for name in repeated])
    results = [_outcome(monitors.get(beat.monitor_id), beat) for beat in beats]
    unauthorized = [index for index, result in enumerate(results) if result is None]
    if unauthorized:
        _refuse(connection, beats, results, unauthorized)
    if changed := [monitor for monitor in monitors.values() if monitor.changed]:
        store_monitors(connection, changed)
        raise_alerts(connection, [notice for monitor in changed for notice in monitor.notices], now=beats[-1].at)
    return [result for result in results if result is not None]


def _outcome(monitor: LoadedMonitor | None, beat: Beat) -> BeatOutcome | Exception | None:
    """Apply a beat to its monitor; returns the outcome or a problem, None if the secret is wrong."""
    if not digest_matches(monitor.secret_digest if monitor else None, beat.secret_digest) or monitor is None:
        return None
    minute = int(beat.at.timestamp()) // 60
    beats_before = monitor.minute_beats if monitor.minute == minute else 0
    if beats_before >= BEATS_PER_MINUTE:
        return too_many_beats(beat.at, limit=BEATS_PER_MINUTE)
    if beat.capsule is not None and is_stale(beat.seq, monitor.last_seq):
        return stale_seq(beat.seq or 0, monitor.last_seq or 0)
    if _repeats_seq(beat, monitor) and not _is_retry(beat, monitor):
        return seq_reused(beat.seq or 0)
    monitor.minute, monitor.minute_beats = minute, beats_before + 1
    return _apply(monitor, beat)


def _repeats_seq(beat: Beat, monitor: LoadedMonitor | None) -> bool:
    return beat.capsule is not None and beat.seq is not None and monitor is not None and beat.seq == monitor.last_seq


def _is_retry(beat: Beat, monitor: LoadedMonitor) -> bool:
    """Whether its capsule is the one that is stored under its seq."""
    return isinstance(beat.capsule, bytes) and monitor.last_capsule is not None and is_same(beat.capsule, monitor.last_capsule)


def _apply(monitor: LoadedMonitor, beat: Beat) -> BeatOutcome:
    before = monitor.state
    change = apply_event(before, event_of(beat.status), monitor.schedule, beat.at, next_in=beat.next_in)
    monitor.state, monitor.changed = change.state, True
    if change.alert is not None:
        monitor.notices.append(_notice(monitor, before, change.alert, beat))
    monitor.history = with_beat(monitor.history, beat.at, beat.status, change.run)
    monitor.last_beat_at, monitor.beats, monitor.unverified = beat.at, monitor.beats + 1, False
    return BeatOutcome(
        shown_state(change.state, beat.at),
        change.state.deadline_at,
        _store_capsule(monitor, beat),
        owned=monitor.owner is not None,
        asleep=change.state.mode == "asleep",
        alert=change.alert,
    )


def _notice(monitor: LoadedMonitor, before: MonitorState, kind: Kind, beat: Beat) -> Notice:
    recovered = kind == "recovered"
    reason = "beat" if recovered else "fail" if isinstance(beat.status, str) else f"exit code {beat.status}"
    return Notice(
        monitor_id=monitor.id,
        epoch=monitor.state.epoch,
        kind=kind,
        at=beat.at,
        since=before.since if recovered else monitor.state.since,
        until=beat.at if recovered else None,
        reason=reason,
        last_beat_at=monitor.last_beat_at if recovered else beat.at,
    )


def _store_capsule(monitor: LoadedMonitor, beat: Beat) -> bool:
    """Store the beat's capsule if a valid key owns the monitor; returns whether it is stored now."""
    capsule, number = beat.capsule, monitor.capsules
    if not isinstance(capsule, bytes) or monitor.stores_until is None or beat.at >= monitor.stores_until:
        return False
    if is_new(beat.seq, monitor.last_seq):
        monitor.new_capsules.append((number % CAPSULES_PER_MONITOR, number, beat.seq, beat.at, capsule))
        monitor.capsules = number + 1
        if beat.seq is not None:
            monitor.last_seq, monitor.last_capsule = beat.seq, capsule
    return True


def _refuse(
    connection: Connection, beats: Sequence[Beat], results: list[BeatOutcome | Exception | None], unauthorized: Iterable[int]
) -> None:
    """Refuse beats with a wrong secret. Every id is looked up in the same way, so that timing does not tell which ids exist."""
    ids = {beats[index].monitor_id for index in unauthorized}
    found = connection.execute(
        select(RETIRED_SECRETS.c.monitor_id, RETIRED_SECRETS.c.digest).where(among(connection, RETIRED_SECRETS.c.monitor_id, ids))
    )
    retired: set[tuple[str, bytes]] = {(monitor_id, digest) for monitor_id, digest in found}
    for index in unauthorized:
        beat = beats[index]
        results[index] = taken_over() if (beat.monitor_id, beat.secret_digest) in retired else monitor_not_found()
