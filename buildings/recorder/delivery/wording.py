"""Alerts in words, for people: Discord and e-mail. Pure."""

from datetime import datetime, timedelta

from buildings.recorder.delivery.event import Event


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
