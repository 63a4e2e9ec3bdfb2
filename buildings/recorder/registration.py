"""Registering a monitor: limits, targets and row in one transaction, so that they hold however many register at once."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, insert, select, update

from buildings.recorder.monitors import apply_key_event
from buildings.recorder.problems import MONITORS_PER_KEY, monitor_limit_reached
from buildings.recorder.results import Registered
from buildings.recorder.secrets import digest_of, new_secret
from buildings.recorder.state_machine import Schedule, initial_state
from buildings.recorder.tables import MONITORS, OWNERS
from buildings.recorder.targets import ask_to_confirm, claim_target
from buildings.recorder.urls import MonitorUrls, badge_url
from campus import Entropy, Key, random_id
from campus.alerts import Address, ClaimedTarget, Registrant, signing_secret

UNCONFIRMED = "An e-mail was sent to alert_email: no alert is sent there until its recipient confirms through the link."
IGNORED = {
    "key_expired": "The key that was sent has expired and was ignored",
    "key_revoked": "The key that was sent was revoked and is ignored",
    "key_unknown": "The key that was sent is unknown and was ignored",
}
FREE = "{why}: no key owns this monitor. To have a key own it, delete it and register it again with a valid key."
KEYLESS = (
    "Registered without a key: capsules are not stored, and the monitor is deleted when no beat comes for 30 days after its deadline; an"
    " alert says so the day before."
)


@dataclass(frozen=True)
class RegistrationRequest:
    """What is to be registered, its addresses checked."""

    name: str
    schedule: Schedule
    webhook: Address | None
    email: Address | None
    key: Key | None
    by: Registrant
    url: str
    warning: str | None = None
    key_ignored: str | None = None

    @property
    def owner(self) -> str | None:
        """Who is to own it."""
        return self.by.owner


def register(connection: Connection, request: RegistrationRequest, *, now: datetime, entropy: Entropy) -> Registered:
    """Make the monitor; Problem 409 beyond the limits."""
    if request.key is not None:
        _count_one_more(connection, request.key, now=now)
    webhook = claim_target(connection, request.webhook, request.by, now=now, entropy=entropy) if request.webhook else None
    email = claim_target(connection, request.email, request.by, now=now, entropy=entropy) if request.email else None
    monitor_id, secret, badge_id = random_id("mon", entropy), new_secret(entropy), random_id("badge", entropy)
    state = initial_state(request.schedule, now)
    connection.execute(
        insert(MONITORS).values(
            **{"id": monitor_id, "secret_digest": digest_of(secret), "badge_id": badge_id, "owner": request.owner, "name": request.name},
            **{"webhook": webhook and webhook.id, "email": email and email.id, "registered_at": now},
            **{**request.schedule._asdict(), **state._asdict()},
            **{"unverified": False, "beats": 0, "history": b"", "minute": 0, "minute_beats": 0, "capsules": 0, "fence": 0},
        )
    )
    if email is not None and not email.confirmed and request.owner:
        ask_to_confirm(connection, email.id, request.owner, monitor_id=monitor_id, now=now)
    return _answer(request, monitor_id, secret, badge_id, webhook, email, deadline_at=state.deadline_at)


def _count_one_more(connection: Connection, key: Key, *, now: datetime) -> None:
    """One statement decides, so that two at once cannot both be the twentieth."""
    ends_at = connection.scalar(select(OWNERS.c.ends_at).where(OWNERS.c.lineage == key.lineage))
    if ends_at is None:
        connection.execute(insert(OWNERS).values(lineage=key.lineage, monitors=0, ends_at=key.expires_at, asked_on=0, asked=0))
    elif key.expires_at > ends_at:
        connection.execute(update(OWNERS).where(OWNERS.c.lineage == key.lineage).values(ends_at=key.expires_at))
        apply_key_event(connection, key.lineage, "key_renewed", now=now)
    room = (OWNERS.c.lineage == key.lineage) & (OWNERS.c.monitors < MONITORS_PER_KEY)
    if not connection.execute(update(OWNERS).where(room).values(monitors=OWNERS.c.monitors + 1).returning(OWNERS.c.monitors)).all():
        raise monitor_limit_reached()


def _answer(
    request: RegistrationRequest,
    monitor_id: str,
    secret: str,
    badge_id: str,
    webhook: ClaimedTarget | None,
    email: ClaimedTarget | None,
    *,
    deadline_at: datetime,
) -> Registered:
    at = MonitorUrls(request.url, monitor_id)
    signs = webhook is not None and request.webhook is not None and request.webhook.kind == "webhook"
    ignored = IGNORED.get(request.key_ignored or "")
    said = {
        FREE.format(why=ignored): ignored is not None,
        request.warning: request.warning is not None,
        UNCONFIRMED: email is not None and not email.confirmed,
        KEYLESS: request.owner is None,
    }
    return Registered(
        monitor_id=monitor_id,
        secret=secret,
        webhook_secret=signing_secret(webhook.secret) if webhook is not None and signs else None,
        beat_url=at.beat(secret),
        cron=at.cron(secret),
        state="alive",
        period_minutes=request.schedule.period / timedelta(minutes=1),
        grace_minutes=request.schedule.grace / timedelta(minutes=1),
        deadline_at=deadline_at,
        tier="key" if request.owner else "free",
        key_ignored=request.key_ignored,
        badge_url=badge_url(request.url, badge_id),
        resume_url=at.capsule if request.owner else None,
        notes=tuple(note for note, holds in said.items() if note and holds),
    )
