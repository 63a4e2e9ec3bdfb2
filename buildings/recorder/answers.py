"""What the tools answer: frozen models, every field described for the agent that reads it."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from buildings.recorder.signal import Status
from buildings.recorder.status import State

STATE = "alive: beats come. late: the expected beat has not come, and the grace is running. dead: the deadline passed, or it said fail."


class Part(BaseModel):
    """Base of everything that is answered."""

    model_config = ConfigDict(frozen=True)


class Answer(Part):
    """Base of a whole answer."""

    ok: Literal[True] = Field(default=True, description="True: the call did what it says.")


class Registered(Answer):
    """A new monitor. The secrets are shown here and nowhere else."""

    monitor_id: str = Field(description="Names the monitor in every other call.")
    secret: str = Field(description="Authorizes heartbeat and delete_monitor for this monitor. Keep it: it cannot be shown again.")
    webhook_secret: str | None = Field(
        description="Verifies the signatures of this webhook's alerts (Standard Webhooks); null without a webhook of your own."
    )
    beat_url: str = Field(description="GET or POST it to beat; it holds the secret.")
    cron: str = Field(
        description="A shell command that beats: put it at the end of a scheduled job. It retries while the service restarts."
    )
    state: State = Field(description=STATE)
    period_minutes: float = Field(description="A beat is expected this often.")
    grace_minutes: float = Field(description="How long after a missed beat the alert waits.")
    deadline_at: datetime = Field(description="An alert goes out when no beat has come by then. The clock runs already.")
    tier: Literal["free", "key"] = Field(
        description="key: yours by your key, with capsules, fleet_status and e-mail. free: controlled by its secret."
    )
    key_ignored: str | None = Field(
        default=None,
        description="Why the key that was sent does not count: key_expired, key_revoked or key_unknown. Null: it counts, or none was sent.",
    )
    badge_url: str = Field(description="A public picture of the state, for a README or dashboard; it holds no secret.")
    resume_url: str | None = Field(
        description="Where a replacement fetches the last capsule with the owning key; it holds no secret. Null on the free tier."
    )
    notes: tuple[str, ...] = Field(description="What else is to be known or done, such as confirming an e-mail address.")


class Beaten(Answer):
    """A beat that is on disk."""

    monitor_id: str = Field(description="The monitor that was beaten for.")
    state: State = Field(description=STATE)
    received_at: datetime = Field(description="When the beat arrived; that is its time.")
    deadline_at: datetime = Field(description="The next beat must come before this, or an alert goes out.")
    capsule_stored: bool = Field(description="Whether a capsule came along and is on disk.")
    note: str | None = Field(default=None, description="Why a capsule was not stored, or that the monitor sleeps.")


class Call(Part):
    """One call to make."""

    why: str = Field(description="What it is for.")
    tool: str = Field(description="The tool over MCP.")
    arguments: dict[str, Any] = Field(description="Its arguments.")
    http: str = Field(description="The same over HTTP.")


class Resume(Part):
    """How a replacement goes on."""

    words: str = Field(description="What to do, step by step.")
    calls: tuple[Call, ...] = Field(description="The calls to make, in order.")


class CapsuleView(Part):
    """A stored capsule."""

    seq: int | None = Field(description="The number that its agent gave it.")
    stored_at: datetime = Field(description="When it arrived.")
    size: int = Field(description="Bytes of compact JSON.")
    capsule: Any = Field(description="The state that the agent sent, as it sent it.")


class CapsuleAnswer(Answer):
    """The last capsule of a monitored agent, and how to go on from it."""

    monitor_id: str = Field(description="The monitor.")
    name: str = Field(description="Its name.")
    state: State = Field(description=STATE)
    last_beat_at: datetime | None = Field(description="When its agent last beat; null before the first beat.")
    fence: int = Field(description="How often a replacement has taken over.")
    found: bool = Field(description="Whether there is a capsule.")
    last: CapsuleView | None = Field(description="The last capsule; null when none was ever stored.")
    earlier: tuple[CapsuleView, ...] = Field(description="Up to four before it, the latest first.")
    resume: Resume = Field(description="How to go on.")


class Taken(Answer):
    """A monitor that is yours now; the old secret is retired."""

    monitor_id: str = Field(description="The monitor; its id stays.")
    name: str = Field(description="Its name.")
    secret: str = Field(description="The new secret; only who has it can beat. It cannot be shown again.")
    fence: int = Field(description="Grows with every takeover: hand it to systems that must refuse your predecessor.")
    beat_url: str = Field(description="GET or POST it to beat; it holds the secret.")
    cron: str = Field(description="A shell command that beats.")
    state: State = Field(description=STATE)
    deadline_at: datetime = Field(description="Beat before this, or your own death is reported.")
    last: CapsuleView | None = Field(description="Where your predecessor stopped; null when it stored no capsule.")
    words: str = Field(description="What to do now.")


class BeatView(Part):
    """One past beat."""

    at: datetime = Field(description="When it arrived.")
    status: Status = Field(description="What it said: ok, start, fail or an exit code.")
    run_seconds: float | None = Field(description="How long the run took that it ended, from the beat that said start.")


class Preview(Part):
    """The beginning of a capsule."""

    seq: int | None = Field(description="The number that its agent gave it.")
    stored_at: datetime = Field(description="When it arrived.")
    size: int = Field(description="Bytes of compact JSON.")
    text: str = Field(description="The beginning of its JSON.")


class TargetView(Part):
    """Where alerts go."""

    kind: Literal["webhook", "discord", "email"] = Field(description="How they are sent.")
    address: str = Field(description="Where to; of a webhook only the host, for the rest may be a secret.")
    state: Literal["ready", "unconfirmed", "failing", "disabled"] = Field(description="Whether alerts reach it.")
    reason: str | None = Field(description="Why not, and what to do.")
    undelivered: int = Field(description="Alerts of this monitor that wait to be delivered there.")


class Entry(Part):
    """One monitor of the fleet."""

    monitor_id: str = Field(description="The monitor.")
    name: str = Field(description="Its name.")
    state: State = Field(description=STATE)
    paused: bool = Field(description="True when it raises no alerts: you paused it, or its key ended a week ago.")
    since: datetime = Field(description="Since when it is up, down or paused.")
    reason: str | None = Field(description="Why it is dead: timeout or fail; null when it is not.")
    last_beat_at: datetime | None = Field(description="When it last beat; null before the first beat.")
    expected_at: datetime = Field(description="When the next beat is expected.")
    deadline_at: datetime = Field(description="When it is reported dead without one.")
    unverified: bool = Field(description="True when the service itself was down, and a beat may have been lost: its deadline was moved.")
    period_minutes: float = Field(description="A beat is expected this often.")
    grace_minutes: float = Field(description="How long after a missed beat the alert waits.")
    registered_at: datetime = Field(description="When it was registered.")
    uptime: float | None = Field(description="The share of the watched time since then that it was not down, 0 to 1.")
    beats: int = Field(description="How often it has beaten.")
    last_beats: tuple[BeatView, ...] = Field(description="Up to 20, the latest first.")
    capsule: Preview | None = Field(description="The beginning of the last capsule; fetch_capsule gives all of it.")
    fence: int = Field(description="How often a replacement has taken over.")
    targets: tuple[TargetView, ...] = Field(description="Where its alerts go, and whether they arrive.")
    undelivered: int = Field(description="Alerts that wait to be delivered.")
    badge_url: str = Field(description="A public picture of the state.")
    resume_url: str = Field(description="Where a replacement fetches the last capsule, with the key.")


class Fleet(Answer):
    """The monitors of the calling key."""

    count: int = Field(description="How many monitors the key owns; 20 at most.")
    monitors: tuple[Entry, ...] = Field(description="Those of this page, by monitor_id.")
    next: str | None = Field(description="Give it as `after` for the next page; null on the last one.")


class Watched(Answer):
    """A monitor after pause_monitor or resume_monitor."""

    monitor_id: str = Field(description="The monitor.")
    state: State = Field(description=STATE)
    paused: bool = Field(description="Whether it raises no alerts now.")
    deadline_at: datetime | None = Field(description="When it is reported dead without a beat; null while it is paused.")


class Deleted(Answer):
    """A monitor that is gone."""

    monitor_id: str = Field(description="The monitor that was.")
    deleted: Literal[True] = Field(default=True, description="It, its capsules, its history and its waiting alerts are gone.")
