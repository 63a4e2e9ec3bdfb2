"""Taking beats: all that wait in one transaction. Runs in a thread of its own on SQLite; touches nothing but its arguments."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, select

from buildings.recorder.alerts import Notice, raise_alerts
from buildings.recorder.capsule import KEPT_CAPSULES, is_new, is_same, is_stale
from buildings.recorder.moments import EPOCH, MICROSECOND
from buildings.recorder.plain import enter_plain
from buildings.recorder.refusals import monitor_not_found, seq_reused, stale_seq, taken_over, too_many_beats
from buildings.recorder.rows import among
from buildings.recorder.secrets import is_right
from buildings.recorder.sheets import Sheet, read_last_capsules, read_sheets, write_sheets
from buildings.recorder.signal import Beat, event_of, with_beat
from buildings.recorder.status import Kind, Standing, State, follow, state_of
from buildings.recorder.tables import RETIRED_SECRETS

BEATS_A_MINUTE = 120


class Taken(NamedTuple):
    """What a beat did. `asleep`: its monitor raises no alerts, for the key that owns it has ended."""

    state: State
    deadline_at: datetime
    kept: bool = False
    owned: bool = False
    asleep: bool = False
    alert: Kind | None = None


def take_beats(connection: Connection, beats: Sequence[Beat]) -> list[Taken | Exception]:
    """Enter the beats, each monitor's in the order of their arrival; returns what each did, or why it is refused."""
    plain = enter_plain(connection, beats, most=BEATS_A_MINUTE)
    # of a monitor's beats it is the first that was plain
    results: list[Taken | Exception | None] = [_plain(plain.pop(beat.monitor_id, None)) for beat in beats]
    if left := [place for place, result in enumerate(results) if result is None]:
        for place, result in zip(left, enter(connection, [beats[place] for place in left]), strict=True):
            results[place] = result
    return [result for result in results if result is not None]


def _plain(deadline: int | None) -> Taken | None:
    return None if deadline is None else Taken("alive", EPOCH + deadline * MICROSECOND)


def enter(connection: Connection, beats: Sequence[Beat]) -> list[Taken | Exception]:
    """Enter beats of any kind, one after the other."""
    wanted = {beat.monitor_id for beat in beats}
    sheets = read_sheets(connection, wanted)
    if again := {beat.monitor_id for beat in beats if _repeats_seq(beat, sheets.get(beat.monitor_id))}:
        read_last_capsules(connection, [sheets[name] for name in again])
    results = [_taken(sheets.get(beat.monitor_id), beat) for beat in beats]
    strangers = [place for place, result in enumerate(results) if result is None]
    if strangers:
        _turn_away(connection, beats, results, strangers)
    if changed := [sheet for sheet in sheets.values() if sheet.changed]:
        write_sheets(connection, changed)
        raise_alerts(connection, [notice for sheet in changed for notice in sheet.notices], now=beats[-1].at)
    return [result for result in results if result is not None]


def _taken(sheet: Sheet | None, beat: Beat) -> Taken | Exception | None:
    """What a beat does to its monitor; a refusal; or None for one whose secret is not its monitor's."""
    if not is_right(sheet.secret_digest if sheet else None, beat.secret_digest) or sheet is None:
        return None
    minute = int(beat.at.timestamp()) // 60
    beats_before = sheet.minute_beats if sheet.minute == minute else 0
    if beats_before >= BEATS_A_MINUTE:
        return too_many_beats(beat.at, limit=BEATS_A_MINUTE)
    if beat.capsule is not None and is_stale(beat.seq, sheet.last_seq):
        return stale_seq(beat.seq or 0, sheet.last_seq or 0)
    if _repeats_seq(beat, sheet) and not _is_retry(beat, sheet):
        return seq_reused(beat.seq or 0)
    sheet.minute, sheet.minute_beats = minute, beats_before + 1
    return _entered(sheet, beat)


def _repeats_seq(beat: Beat, sheet: Sheet | None) -> bool:
    return beat.capsule is not None and beat.seq is not None and sheet is not None and beat.seq == sheet.last_seq


def _is_retry(beat: Beat, sheet: Sheet) -> bool:
    """Whether it brings what is stored under its seq already."""
    return isinstance(beat.capsule, bytes) and sheet.last_capsule is not None and is_same(beat.capsule, sheet.last_capsule)


def _entered(sheet: Sheet, beat: Beat) -> Taken:
    before = sheet.standing
    change = follow(before, event_of(beat.status), sheet.terms, beat.at, next_in=beat.next_in)
    sheet.standing, sheet.changed = change.standing, True
    if change.alert is not None:
        sheet.notices.append(_notice(sheet, before, change.alert, beat))
    sheet.history = with_beat(sheet.history, beat.at, beat.status, change.run)
    sheet.last_beat_at, sheet.beats, sheet.unverified = beat.at, sheet.beats + 1, False
    return Taken(
        state_of(change.standing, beat.at),
        change.standing.deadline_at,
        _keep(sheet, beat),
        owned=sheet.owner is not None,
        asleep=change.standing.mode == "asleep",
        alert=change.alert,
    )


def _notice(sheet: Sheet, before: Standing, kind: Kind, beat: Beat) -> Notice:
    recovered = kind == "recovered"
    reason = "beat" if recovered else "fail" if isinstance(beat.status, str) else f"exit code {beat.status}"
    return Notice(
        targets=sheet.targets,
        monitor_id=sheet.id,
        epoch=sheet.standing.epoch,
        kind=kind,
        at=beat.at,
        since=before.since if recovered else sheet.standing.since,
        until=beat.at if recovered else None,
        reason=reason,
        last_beat_at=sheet.last_beat_at if recovered else beat.at,
    )


def _keep(sheet: Sheet, beat: Beat) -> bool:
    """Store the capsule that came along, if a key that has not ended owns the monitor; returns whether it is stored."""
    capsule, number = beat.capsule, sheet.capsules
    if not isinstance(capsule, bytes) or sheet.keeps_until is None or beat.at >= sheet.keeps_until:
        return False
    if is_new(beat.seq, sheet.last_seq):
        sheet.kept.append((number % KEPT_CAPSULES, number, beat.seq, beat.at, capsule))
        sheet.capsules = number + 1
        if beat.seq is not None:
            sheet.last_seq, sheet.last_capsule = beat.seq, capsule
    return True


def _turn_away(connection: Connection, beats: Sequence[Beat], results: list[Taken | Exception | None], strangers: Iterable[int]) -> None:
    """Refuse whoever does not know the secret. All are looked up alike, so that time does not tell which ids there are."""
    ids = {beats[place].monitor_id for place in strangers}
    found = connection.execute(
        select(RETIRED_SECRETS.c.monitor_id, RETIRED_SECRETS.c.digest).where(among(connection, RETIRED_SECRETS.c.monitor_id, ids))
    )
    retired: set[tuple[str, bytes]] = {(monitor_id, digest) for monitor_id, digest in found}
    for place in strangers:
        beat = beats[place]
        results[place] = taken_over() if (beat.monitor_id, beat.secret_digest) in retired else monitor_not_found()
