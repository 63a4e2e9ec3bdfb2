"""A beat as it arrived, and what it did."""

from datetime import datetime, timedelta
from typing import NamedTuple

from buildings.recorder.beats.sessions import HostEvent
from buildings.recorder.monitors.state_machine import Kind, ShownState, Status


class Unstored(NamedTuple):
    """Takes the place of a capsule that cannot be stored: the reason, and whether it is the size."""

    reason: str
    is_too_large: bool = False


class Beat(NamedTuple):
    """A beat as it arrived. `capsule` is its JSON, or why it cannot be stored; it replaces a last capsule that begins with `replaces`.

    `rid` names the run that it starts or ends, `output` is the end of what that run wrote (runs.end_of), `progress` the digest of what the
    agent says of its progress; `session` and `agent` are whose beat it is, and `host` the event, as the hooks of a host report it.
    """

    monitor_id: str
    secret_digest: bytes
    at: datetime
    status: Status
    next_in: timedelta | None = None
    capsule: bytes | Unstored | None = None
    seq: int | None = None
    replaces: bytes | None = None
    rid: str | None = None
    output: bytes | None = None
    progress: bytes | None = None
    session: str | None = None
    agent: str | None = None
    host: HostEvent | None = None


class BeatOutcome(NamedTuple):
    """What a beat did. `owned`: a key owns the monitor. `asleep`: that key expired a week ago, so no alerts are raised."""

    state: ShownState
    deadline_at: datetime | None
    fence: int
    capsule_stored: bool = False
    owned: bool = False
    asleep: bool = False
    alert: Kind | None = None
    stuck: bool = False
