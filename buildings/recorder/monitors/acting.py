"""What follows a trouble until somebody acts: reminders, escalations, and the alerts that a mute held.

Pure. A sweep looks at a monitor by itself if more may follow than one alert: `look_at` says what is due now and when to look again.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Row

from buildings.recorder.alerts.raising import Link, Notice
from buildings.recorder.beats.rules import failure_in_words, past_beats
from buildings.recorder.monitors.muting import RECOVERED, REMINDER, announcement, mute_end
from buildings.recorder.monitors.options import MonitorOptions, read_options
from buildings.recorder.monitors.state_machine import TROUBLES, WITH_DEADLINE, MonitorState, apply_event, reason_of, stored_state


class Look(NamedTuple):
    """What a sweep found of one monitor: its columns that change, and the alerts to raise. `died`: its deadline had passed."""

    changes: dict[str, Any]
    notices: Sequence[Notice]
    died: bool


def is_followed_up(options: MonitorOptions, *, has_conditions: bool) -> bool:
    """Whether more may follow a trouble than one alert to all targets; the deaths of all other monitors are marked by one statement.

    `has_conditions`: of a target.
    """
    return has_conditions or options.remind_minutes is not None or bool(options.maintenance)


def look_at(row: Row[Any], links: Sequence[Link], now: datetime) -> Look:
    """What is due of a monitor now: its death, the alert that a mute held, escalations and a reminder; and when to look again."""
    options = read_options(row.options)
    before = stored_state(row)
    change = apply_event(before, "deadline", options.schedule_of(row.period, row.grace), now) if before.mode in WITH_DEADLINE else None
    state = before if change is None else change.state
    is_new = state.epoch != before.epoch
    acknowledged_at, reminded_at = (None, None) if is_new else (row.acknowledged_at, row.reminded_at)
    ends = mute_end(row.muted_until, options.calendar, now)
    alert, held = announcement(change.alert if change else None, held=row.held, before=before.mode, is_muted=ends is not None)
    notices = [] if alert is None else [_notice(row, state, alert, now, options)]
    if held is not None and ends is None:
        notices += _held_alert(row, state, held, now, options, is_acknowledged=acknowledged_at is not None)
        held = None
    if notices:
        reminded_at = now
    times = [state.deadline_at] if state.mode in WITH_DEADLINE else []
    kind = TROUBLES.get(state.mode)
    if ends is not None and (held is not None or kind is not None):
        times.append(ends)
    elif kind is not None and acknowledged_at is None:
        later = [link for link in links if link.after is not None and not link.told and link.names(kind)]
        due = [link for link in later if link.after is not None and state.since + link.after <= now]
        if due:
            notices.append(_notice(row, state, kind, now, options)._replace(targets=[link.target_id for link in due]))
        times += [state.since + link.after for link in later if link.after is not None and link not in due]
        if options.remind_minutes is not None:
            every = timedelta(minutes=options.remind_minutes)
            last = max(reminded_at or state.since, state.since)
            if last + every <= now:
                notices.append(_notice(row, state, REMINDER, now, options))
                last = reminded_at = now
            times.append(last + every)
    changes = {**state._asdict(), "acknowledged_at": acknowledged_at, "reminded_at": reminded_at, "held": held}
    return Look({**changes, "due_at": min(times, default=None)}, notices, died=state.mode != before.mode)


def _held_alert(
    row: Row[Any], state: MonitorState, held: str, now: datetime, options: MonitorOptions, *, is_acknowledged: bool
) -> list[Notice]:
    """The alert of a mute that has ended, if what it reports still holds."""
    kind = TROUBLES.get(state.mode)
    if held == RECOVERED:
        since = row.held_since or state.since
        return [Notice(row.id, state.epoch, RECOVERED, now, since, state.since, "beat", row.last_beat_at)] if kind is None else []
    if kind is None or (held == REMINDER and is_acknowledged):
        return []
    return [_notice(row, state, REMINDER if held == REMINDER else kind, now, options)]


def _notice(row: Row[Any], state: MonitorState, kind: str, now: datetime, options: MonitorOptions) -> Notice:
    return Notice(row.id, state.epoch, kind, now, state.since, None, _reason(row, state, options), row.last_beat_at)


def _reason(row: Row[Any], state: MonitorState, options: MonitorOptions) -> str:
    """Why a monitor is in trouble, as its first alert said."""
    if state.mode != "failed":
        return reason_of(state) if state.mode == "missed" else "stuck"
    reported = (beat.status for beat in past_beats(row.history) if beat.status == "fail" or (isinstance(beat.status, int) and beat.status))
    return failure_in_words(next(reported, "fail"), state.failures, options)
