"""Registering a monitor: the limit per key, its targets and its row, and the stored answers to repeated requests.

Limit, targets and row are one transaction, so that the limit holds for any number of concurrent registrations. For a day the
same request with the same Idempotency-Key gets the same answer. That answer holds the monitor's secret, so it is encrypted under
the Idempotency-Key, which is not stored.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update
from starlette.types import Scope

from buildings.recorder.alerts.targets import UNCONFIRMED_NOTE, MonitorAddresses, link_targets, signing_secrets
from buildings.recorder.models import Registered
from buildings.recorder.monitors.acting import is_followed_up
from buildings.recorder.monitors.credentials import Credentials, MonitorUrls, badge_url, digests_of, new_secret
from buildings.recorder.monitors.keys import open_owner
from buildings.recorder.monitors.options import NO_OPTIONS, MonitorOptions
from buildings.recorder.monitors.rows import MonitorUpdate, NewTargets, tags_column, update_stored
from buildings.recorder.monitors.state_machine import MonitorState, Schedule, due_at, initial_state
from buildings.recorder.problems import monitor_limit_reached
from buildings.recorder.tables import MONITORS, OWNERS, REPLIES
from campus import Problem
from campus.caller import Key
from campus.features.alerts import Channel, ClaimedTarget, Registrant
from campus.idempotency_keys import check_idempotency_key
from campus.secrets import Entropy, random_id, seal, unseal
from twins import RequestDependency

ANSWER_RETENTION = timedelta(hours=24)
IGNORED = {
    "key_expired": "The key that was sent has expired and was ignored",
    "key_revoked": "The key that was sent was revoked and is ignored",
    "key_unknown": "The key that was sent is unknown and was ignored",
}
KEY_IGNORED = "{why}: no key owns this monitor. To have a key own it, delete it and register it again with a valid key."
CHANGED = "The monitor with this slug was changed; its secret stays as it is. If nobody has it, replace_secret makes a new one."
WITHOUT_KEY = (
    "Registered without a key: its page, page_url, shows the last capsule if it has at most 2 KB, and nothing returns it. The monitor is"
    " deleted when no beat comes for 30 days after its deadline; an alert says so the day before. claim_monitor moves it to a key."
)


@dataclass(frozen=True)
class RegistrationRequest:
    name: str
    schedule: Schedule
    addresses: MonitorAddresses
    key: Key | None
    maker: str | None
    by: Registrant
    url: str
    options: MonitorOptions = NO_OPTIONS
    slug: str | None = None
    tags: Sequence[str] = ()
    most: int = 0
    channels: Sequence[Channel] = ()
    warning: str | None = None
    key_ignored: str | None = None


def register(connection: Connection, request: RegistrationRequest, *, now: datetime, entropy: Entropy) -> Registered:
    """Create the monitor. Problem 409 beyond the limits."""
    if request.key is not None:
        if (known := monitor_with_slug(connection, request.key.lineage, request.slug)) is not None:
            declared = replace(request.addresses, more=request.addresses.more or ())  # other targets of the monitor end
            return register_again(connection, known, replace(request, addresses=declared), now=now, entropy=entropy)
        count_monitor(connection, request.key, request.most, now=now, entropy=entropy)
    wanted = request.addresses.wanted
    monitor_id = random_id("mon", entropy)
    secret = new_secret(entropy)
    badge_id = random_id("badge", entropy)
    state = initial_state(request.schedule, now)
    row = new_row(monitor_id, request.name, request.schedule, state, now=now)
    own = {"badge_id": badge_id, "owner": request.by.owner, "made_by": request.maker, "slug": request.slug}
    options = {"options": request.options.stored, "plain": request.options.is_plain, "tags": tags_column(request.tags)}
    options |= {"followed_up": is_followed_up(request.options, has_conditions=any(one.has_conditions for one in wanted))}
    connection.execute(insert(MONITORS).values(**(row | own | options), **digests_of(secret, owned=request.by.owner is not None)))
    targets = link_targets(connection, monitor_id, wanted, request.by, now=now, entropy=entropy)
    return _result(request, monitor_id, secret, badge_id, targets, state=state, now=now)


def new_row(monitor_id: str, name: str, schedule: Schedule, state: MonitorState, *, now: datetime) -> dict[str, object]:
    """The columns of a monitor that nothing was heard of yet, without its secret, owner and options."""
    times = {"period": schedule.period, "grace": schedule.grace, "registered_at": now, "due_at": due_at(state)}
    counters = ("beats", "minute", "minute_beats", "capsules", "fence", "runs", "unchanged")
    return {
        "id": monitor_id,
        "name": name,
        **times,
        **state._asdict(),
        "unverified": False,
        "followed_up": False,
        "history": b"",
        **dict.fromkeys(counters, 0),
    }


def monitor_with_slug(connection: Connection, owner: str | None, slug: str | None) -> Row[Any] | None:
    chosen = select(MONITORS).where(MONITORS.c.owner == owner, MONITORS.c.slug == slug)
    return None if slug is None else connection.execute(chosen).one_or_none()


def register_again(connection: Connection, row: Row[Any], request: RegistrationRequest, *, now: datetime, entropy: Entropy) -> Registered:
    """Make a monitor of the key what the request says; it keeps its secret, its state and its history."""
    changes = MonitorUpdate(
        maker=request.maker,
        name=request.name,
        period=request.schedule.period,
        grace=request.schedule.grace,
        targets=NewTargets(request.addresses, request.by, request.channels, request.warning),
        options=request.options.model_dump(),
        slug=request.slug,
        tags=request.tags,
    )
    changed = update_stored(connection, Credentials(row.id, row.owner, None), changes, now=now, entropy=entropy)
    return Registered(
        **{**dict(changed), "notes": (CHANGED, *changed.notes)},
        updated=True,
        secret=None,
        beat_url=None,
        ping_url=None,
        cron=None,
        fence=row.fence,
        tier="key",
        badge_url=badge_url(request.url, row.badge_id),
        resume_url=MonitorUrls(request.url, row.id).capsule,
    )


def count_monitor(connection: Connection, key: Key, most: int, *, now: datetime, entropy: Entropy) -> None:
    """Count a monitor of a key. One statement checks and counts, so that concurrent registrations cannot exceed the limit."""
    open_owner(connection, key, now=now, entropy=entropy)
    has_room = (OWNERS.c.lineage == key.lineage) & (OWNERS.c.monitors < most)
    if not connection.execute(update(OWNERS).where(has_room).values(monitors=OWNERS.c.monitors + 1).returning(OWNERS.c.monitors)).all():
        raise monitor_limit_reached(most)


def _result(
    request: RegistrationRequest,
    monitor_id: str,
    secret: str,
    badge_id: str,
    targets: Sequence[ClaimedTarget],
    *,
    state: MonitorState,
    now: datetime,
) -> Registered:
    urls = MonitorUrls(request.url, monitor_id)
    secrets = signing_secrets(request.addresses, targets)
    ignored = IGNORED.get(request.key_ignored or "")
    notes = {
        KEY_IGNORED.format(why=ignored): ignored is not None,
        request.warning: request.warning is not None,
        UNCONFIRMED_NOTE: not all(target.confirmed for target in targets),
        WITHOUT_KEY: request.by.owner is None,
    }
    return Registered(
        monitor_id=monitor_id,
        **urls.with_secret(secret),
        webhook_secret=secrets.webhook,
        target_secrets=secrets.more,
        state="alive",
        waiting=True,
        fence=0,
        period_minutes=request.schedule.period / timedelta(minutes=1),
        grace_minutes=request.schedule.grace / timedelta(minutes=1),
        deadline_at=state.deadline_at,
        next_expected=request.schedule.next_expected(state, now),
        tier="key" if request.by.owner else "free",
        key_ignored=request.key_ignored,
        badge_url=badge_url(request.url, badge_id),
        resume_url=urls.capsule if request.by.owner else None,
        page_url=None if request.by.owner else urls.free_page(secret),
        notes=tuple(note for note, holds in notes.items() if note and holds),
    )


class _IdempotencyKey(RequestDependency[str | None]):
    def from_scope(self, scope: Scope) -> str | None:
        found = next((value for name, value in scope.get("headers", ()) if name == b"idempotency-key"), None)
        if found is None:
            return None
        key: str = found.decode("latin-1")
        check_idempotency_key(key)  # callers without a recorder key behind one address differ in nothing else
        return key

    def without_request(self) -> str | None:
        return None


def CurrentIdempotencyKey() -> str | None:
    """The request's Idempotency-Key, as the default of a tool's parameter. Problem 400 `weak_idempotency_key` for a weak one."""
    return _IdempotencyKey()  # type: ignore[return-value]  # twins replaces it by the value at each call


@dataclass(frozen=True)
class IdempotentRequest:
    sender: str
    key: str
    arguments: bytes

    @property
    def secret(self) -> str:
        return f"{self.sender}\n{self.key}"

    @property
    def key_digest(self) -> bytes:
        return sha256(f"find\n{self.secret}".encode()).digest()

    @property
    def request_digest(self) -> bytes:
        return sha256(self.arguments).digest()


def stored_answer(connection: Connection, request: IdempotentRequest | None, *, now: datetime) -> bytes | None:
    """The stored answer to the same request, or None. Problem 422 if its Idempotency-Key was sent with another request."""
    if request is None:
        return None
    row = connection.execute(select(REPLIES).where(REPLIES.c.key_digest == request.key_digest)).one_or_none()
    if row is None or now - row.at >= ANSWER_RETENTION:
        return None
    if row.request_digest != request.request_digest:
        raise Problem(
            422,
            "idempotency_key_reused",
            "this Idempotency-Key was already sent with a different body; use a new one for a new registration",
        )
    return unseal(row.sealed, request.secret)


def answer_once(
    connection: Connection, request: IdempotentRequest | None, work: Callable[[], bytes], *, now: datetime, entropy: Entropy
) -> bytes:
    if request is None:
        return work()
    if (before := stored_answer(connection, request, now=now)) is not None:
        return before
    answer = work()
    connection.execute(REPLIES.delete().where(REPLIES.c.key_digest == request.key_digest))
    sealed = seal(answer, request.secret, entropy=entropy)
    values = {"key_digest": request.key_digest, "request_digest": request.request_digest, "at": now, "sealed": sealed}
    connection.execute(insert(REPLIES).values(**values))
    return answer
