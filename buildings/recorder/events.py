"""The JSON that a webhook is sent: one event, or a digest of events. The models are its documentation."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from buildings.recorder.urls import MonitorUrls

WATCHED_ON = timedelta(days=7)
"""How long the monitors of a key that has ended still alert by webhook."""
EventType = Literal["monitor.dead", "monitor.failed", "monitor.recovered", "monitor.expiring", "recorder.blind", "monitor.digest"]


@dataclass(frozen=True)
class MonitorAlert:
    """One alert as of the time when it was raised; one about the recorder itself has no monitor and no name."""

    kind: str
    monitor_id: str | None
    name: str | None
    at: datetime
    since: datetime
    until: datetime | None
    reason: str
    last_beat_at: datetime | None
    deadline_at: datetime | None
    owned: bool
    capsule: str | None
    taken_at: datetime | None
    key_ends_at: datetime | None


class Part(BaseModel):
    """Base of what is sent."""

    model_config = ConfigDict(frozen=True)


class MonitorPart(Part):
    """Which monitor."""

    id: str = Field(description="Its monitor_id.")
    name: str = Field(description="The name that it was registered with.")


class CapsulePart(Part):
    """The last capsule before the event."""

    stored_at: datetime = Field(description="When it arrived.")
    preview: str = Field(description="The beginning of its JSON.")


class Event(Part):
    """What happened to one monitor; with type recorder.blind to the recorder itself: `since` to `until` it took no beats."""

    type: EventType = Field(
        description="monitor.dead: the deadline passed. monitor.failed: it said fail. monitor.recovered: it beats again."
        " monitor.expiring: a monitor without a key is silent for a month and will be removed."
    )
    timestamp: datetime = Field(description="When it was found.")
    monitor: MonitorPart | None = Field(description="The monitor; null for recorder.blind.")
    state: Literal["alive", "dead"] | None = Field(description="Its state from then on; null where nothing changes.")
    reason: str = Field(description="timeout; fail, or an exit code; beat, or takeover; silent; what kept the recorder from watching.")
    since: datetime = Field(description="Since when it was down: the deadline that passed, or when it said that it failed.")
    until: datetime | None = Field(description="Until when; null while it is down.")
    downtime_seconds: float | None = Field(description="How long that was; null while it is down.")
    last_heartbeat_at: datetime | None = Field(description="The last beat; null when there was none.")
    capsule: CapsulePart | None = Field(description="Where the agent was; only with a key.")
    resume_url: str | None = Field(description="Where a replacement goes on, with the owning key; it holds no secret.")
    notice: str | None = Field(description="What the owner must know, such as that the key has ended.")


class Digest(Part):
    """Many events at once, since more than five waited for one target."""

    type: Literal["monitor.digest"] = "monitor.digest"
    timestamp: datetime = Field(description="When the latest was found.")
    count: int = Field(description="How many events follow.")
    events: tuple[Event, ...] = Field(description="The events in their order.")


STATES: dict[str, Literal["alive", "dead"]] = {"dead": "dead", "failed": "dead", "recovered": "alive"}
TYPES: dict[str, EventType] = {
    "dead": "monitor.dead",
    "failed": "monitor.failed",
    "recovered": "monitor.recovered",
    "expiring": "monitor.expiring",
    "blind": "recorder.blind",
}


def event_of(alert: MonitorAlert, *, url: str) -> Event:
    """The event of one alert; the same at every try."""
    return Event(
        type=TYPES[alert.kind],
        timestamp=alert.at,
        monitor=MonitorPart(id=alert.monitor_id, name=alert.name or "") if alert.monitor_id else None,
        state=STATES.get(alert.kind),
        reason=alert.reason,
        since=alert.since,
        until=alert.until,
        downtime_seconds=(alert.until - alert.since).total_seconds() if alert.until else None,
        last_heartbeat_at=alert.last_beat_at,
        capsule=CapsulePart(stored_at=alert.taken_at, preview=alert.capsule) if alert.capsule and alert.taken_at else None,
        resume_url=MonitorUrls(url, alert.monitor_id).capsule if alert.monitor_id and alert.owned else None,
        notice=notice_of(alert),
    )


def body_of(events: Sequence[Event]) -> Event | Digest:
    """What a webhook is sent: the event, or a digest of many."""
    return events[0] if len(events) == 1 else Digest(timestamp=events[-1].timestamp, count=len(events), events=tuple(events))


def notice_of(alert: MonitorAlert) -> str | None:
    """The notice of an event, if there is one."""
    if alert.kind == "blind":
        return "Beats that were sent meanwhile may be lost. Deadlines were moved, so that none of your monitors is reported dead for it."
    if alert.kind == "expiring":
        return "It will be deleted tomorrow, because it has no key and no beat came for 30 days after its deadline. A heartbeat keeps it."
    if alert.key_ends_at is None or alert.at < alert.key_ends_at:
        return None
    end = alert.key_ends_at + WATCHED_ON
    return (
        f"The key of this monitor ended on {alert.key_ends_at:%Y-%m-%d}: capsules, fleet_status and e-mail alerts have ended with it."
        f" It goes on alerting by webhook until {end:%Y-%m-%d} and then pauses; a renewal of the key wakes it."
    )
