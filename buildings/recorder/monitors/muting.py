"""What a mute does to alerts: while a monitor is snoozed or in maintenance its alerts are held, and one says afterwards what still holds.

Pure. `held` is the kind of the alert that is raised at the end: a trouble of which nobody was told, `reminder` for one that goes on of
which people were told before, and `recovered` for one of these that has ended. A trouble that begins and ends in a mute is never told of.
"""

from datetime import datetime
from typing import NamedTuple

from buildings.recorder.monitors.schedules import MonitorCalendar
from buildings.recorder.monitors.state_machine import TROUBLES, Kind, Mode

RECOVERED = "recovered"
REMINDER = "reminder"
TOLD = frozenset((RECOVERED, REMINDER))


class Announcement(NamedTuple):
    """The alert to raise now, if any, and the one to hold."""

    alert: Kind | None
    held: str | None


def mute_end(muted_until: datetime | None, calendar: MonitorCalendar | None, now: datetime) -> datetime | None:
    """When the alerts of a monitor are raised again; None if they are now."""
    snoozed = muted_until if muted_until is not None and muted_until > now else None
    closed = None if calendar is None else calendar.maintenance_until(now)
    return max((end for end in (snoozed, closed) if end is not None), default=None)


def announcement(alert: Kind | None, *, held: str | None, before: Mode, is_muted: bool) -> Announcement:
    """What becomes of an alert of a change from the mode `before`. Nobody hears of the end of a trouble that nobody was told of."""
    if alert is None:
        return Announcement(None, held)
    is_told = held in TOLD or (held is None and before in TROUBLES)
    if alert == RECOVERED and not is_told:
        return Announcement(None, None)
    if not is_muted:
        return Announcement(alert, None)
    return Announcement(None, REMINDER if is_told and alert != RECOVERED else alert)
