"""What the recorder's alerts say: the JSON of webhooks, and words for people in Discord and e-mail."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal

from sqlalchemy import ColumnElement, Connection, FromClause, Row, func, select

from buildings.recorder.capsule import preview
from buildings.recorder.events import Event, MonitorAlert, body_of, event_of
from buildings.recorder.tables import ALERTS, CAPSULES, MONITORS, OWNERS, TARGETS
from campus import among
from campus.alerts import CONFIRM, AlertContents, AlertText, Content, Question

PREVIEWED_BYTES = 1_000
"""Of a capsule that are read for its preview."""
SEVERITIES: dict[str, Literal["problem", "recovery"]] = {
    "monitor.dead": "problem",
    "monitor.failed": "problem",
    "monitor.recovered": "recovery",
}
QUESTION = 'Somebody, hopefully you, wants alerts sent to this address when the monitor "{name}" misses its beats.'


class MonitorAlerts(AlertContents):
    """Alerts about monitors, with what is known of each monitor when the alert is sent; `url` is the service's."""

    columns: ClassVar[Sequence[ColumnElement[Any]]] = (MONITORS.c.name, MONITORS.c.owner, MONITORS.c.deadline_at, OWNERS.c.ends_at)

    def __init__(self, url: str) -> None:
        self._url = url

    def joined(self, waiting: FromClause) -> FromClause:
        """With the monitor, if the alert is about one, and the owner of the target."""
        owned = waiting.outerjoin(OWNERS, TARGETS.c.owner == OWNERS.c.lineage)
        return owned.outerjoin(MONITORS, ALERTS.c.monitor_id == MONITORS.c.id)

    def load(self, connection: Connection, rows: Sequence[Row[Any]]) -> Sequence[MonitorAlert]:
        """Each alert with the capsule that was the last one when it was raised."""
        capsules = _capsules(connection, {row.monitor_id for row in rows if row.owner})
        return [_alert(row, capsules) for row in rows]

    def compose(self, alerts: Sequence[MonitorAlert]) -> Content | Question:
        """An event, or a digest of events; or the question to a new address."""
        key_ends_at = alerts[0].key_ends_at
        if alerts[0].kind == CONFIRM:
            return Question(QUESTION.format(name=alerts[0].name or "a monitor"), mail_until=key_ends_at)
        events = [event_of(alert, url=self._url) for alert in alerts]
        subject = headline(events[0]) if len(events) == 1 else f"{len(events)} alerts of your monitors"
        return Content(body_of(events), subject, tuple(_text(event) for event in events), mail_until=key_ends_at)


def _capsules(connection: Connection, monitor_ids: set[str]) -> Sequence[Row[Any, Any, Any]]:
    if not monitor_ids:
        return ()
    body = func.substr(CAPSULES.c.body, 1, PREVIEWED_BYTES).label("body")
    statement = select(CAPSULES.c.monitor_id, CAPSULES.c.at, body).where(among(connection, CAPSULES.c.monitor_id, monitor_ids))
    return connection.execute(statement.order_by(CAPSULES.c.number.desc())).all()


def _alert(row: Row[Any], capsules: Sequence[Row[Any, Any, Any]]) -> MonitorAlert:
    last = next((one for one in capsules if one.monitor_id == row.monitor_id and one.at <= row.at), None)
    return MonitorAlert(
        kind=row.kind,
        monitor_id=row.monitor_id,
        name=row.name,
        at=row.at,
        since=row.since,
        until=row.until,
        reason=row.reason,
        last_beat_at=row.last_beat_at,
        deadline_at=row.deadline_at,
        owned=row.owner is not None,
        capsule=preview(last.body) if last else None,
        taken_at=last.at if last else None,
        key_ends_at=row.ends_at,
    )


def _text(event: Event) -> AlertText:
    return AlertText(headline(event), details(event), event.timestamp, SEVERITIES.get(event.type, "notice"))


def headline(event: Event) -> str:
    """What happened, in a line."""
    name = event.monitor.name if event.monitor else ""
    match event.type:
        case "monitor.dead":
            return f"{name} is dead: no beat by {moment(event.since)}"
        case "monitor.failed":
            return f"{name} failed" + ("" if event.reason == "fail" else f" with {event.reason}")
        case "monitor.recovered":
            how = "another agent took over" if event.reason == "takeover" else "it beats again"
            return f"{name} has recovered after {span(event.downtime_seconds or 0)}: {how}"
        case "monitor.expiring":
            return f"{name} will be removed: no beat since its deadline, {moment(event.since)}"
        case _:
            return f"The monitor service itself did not watch from {moment(event.since)} to {moment(event.until or event.since)}"


def details(event: Event) -> list[str]:
    """What else there is to know, a line each."""
    lines = []
    if event.monitor:
        last = moment(event.last_heartbeat_at) if event.last_heartbeat_at else "none yet"
        lines += [f"Monitor: {event.monitor.id}", f"Last beat: {last}"]
    if event.capsule:
        lines.append(f"Capsule of {moment(event.capsule.stored_at)}: {event.capsule.preview}")
    if event.resume_url and event.state == "dead":
        lines.append(f"To go on from there, with your key: {event.resume_url}")
    if event.notice:
        lines.append(event.notice)
    return lines


def moment(at: datetime) -> str:
    """A moment for people, in UTC."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def span(seconds: float) -> str:
    """A length of time for people: 45 s, 12 min, 3 h 20 min, 2 days 4 h."""
    length = timedelta(seconds=round(seconds))
    minutes, hours = length.seconds // 60 % 60, length.seconds // 3600
    if length.days:
        return f"{length.days} day{'s' * (length.days > 1)} {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{length.seconds} s"
