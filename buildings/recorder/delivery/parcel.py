"""What is handed to a channel: one message for one target, of one alert or of a digest of many."""

from dataclasses import dataclass
from datetime import datetime

from buildings.recorder.delivery.shares import Lane


@dataclass(frozen=True)
class Item:
    """One alert as of the moment when it was raised; `name` is its monitor's, none for one about the recorder itself."""

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


@dataclass(frozen=True)
class Parcel:
    """One message. Its id stays the same however often it is tried; `key_ends_at` is the end of the owner's key."""

    message_id: str
    lane: Lane
    kind: str
    address: str
    secret: bytes
    items: tuple[Item, ...]
    failing_since: datetime | None
    key_ends_at: datetime | None

    @property
    def target_id(self) -> str:
        """Whom it is for."""
        return self.lane.target_id

    @property
    def attempts(self) -> int:
        """How often it was tried before."""
        return self.lane.attempts

    @property
    def is_digest(self) -> bool:
        """Whether it tells of more than one thing."""
        return len(self.items) > 1
