"""Watches in the database: made, changed, listed and deleted by the owner of a key, with the targets of their news."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, or_, select, update

from buildings.cve.search.criteria import Days
from buildings.cve.search.queries import numbers_of
from buildings.cve.tables import ALERTS, OUTBOX, TARGETS, WATCH_LINES, WATCH_NEWS, WATCH_OWNERS, WATCHES
from buildings.cve.watches.lines import Judge, store_lines
from buildings.cve.watches.matching import Watched, pack_known, read_criteria, unpack_known
from buildings.cve.watches.models import MOST_WATCHES, FollowedReport, Watch, WatchList, WatchTarget
from buildings.cve.watches.reports import FOLLOWING, Line
from campus import Problem
from campus.caller import Key
from campus.features.alerts import Address, Channel, ClaimedTarget, Registrant, address_of, masked_address, sender_of, target_state
from campus.keys.makers import Maker
from campus.secrets import Entropy, random_id
from campus.storage import among


@dataclass(frozen=True)
class ReportToFollow:
    """The lines of a report that a watch is to follow, and what says what is known of them."""

    lines: Sequence[Line]
    judge: Judge


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a watch should be: the name, the criteria and the addresses, which are checked; None for no address.

    `report` is the one to follow from now on, `follows` whether it follows one that is stored.
    """

    name: str
    criteria: Watched
    webhook: Address | None
    email: Address | None
    report: ReportToFollow | None = None
    follows: bool = False

    def is_stored_in(self, row: Row[Any], addresses: Mapping[str | None, str]) -> bool:
        if self.report or row.following is not None:
            return self.report is not None and row.following is not None and self.name == row.name
        sent = tuple(one.text if one else None for one in (self.webhook, self.email))
        stored = (addresses.get(row.webhook_id), addresses.get(row.email_id))
        return sent == stored and (self.name, self.criteria) == (row.name, read_criteria(row.criteria))


@dataclass(frozen=True)
class Served:
    """The list that is served when a watch is made, with the days that criteria count from: what fits it already is no news."""

    days: Days
    nvd_complete: bool


@dataclass(frozen=True)
class Owner:
    key: Key
    maker: str


@dataclass(frozen=True)
class StoredWatch:
    watch: Watch
    webhook: ClaimedTarget | None
    email: ClaimedTarget | None


def make_watch(connection: Connection, wanted: Wanted, by: Owner, *, served: Served | None, now: datetime, entropy: Entropy) -> StoredWatch:
    """Make a watch; the same one again returns the one that there is, and goes on. Problem 409 beyond the limit of the key.

    One that follows a report is the same if its name is: the new report replaces the one before.

    Without a list, `served` None, what fits the first one is no news.
    """
    key = by.key
    _note_owner(connection, key)
    mine = connection.execute(select(WATCHES).where(WATCHES.c.lineage == key.lineage)).all()
    for row in mine:
        if wanted.is_stored_in(row, _addresses(connection, targets_of(row))):
            if wanted.report:
                return change_watch(connection, row.id, wanted, by, served=served, now=now, entropy=entropy)
            if row.stopped_at is not None:
                connection.execute(update(WATCHES).where(WATCHES.c.id == row.id).values(made_by=by.maker, stopped_at=None))
            return _store_targets(connection, row.id, wanted, key, now=now, entropy=entropy)
    if len(mine) >= MOST_WATCHES:
        raise Problem(409, "watch_limit_reached", f"your key has {MOST_WATCHES} watches, the maximum; delete one with delete_watch")
    watch_id = random_id("watch", entropy)
    fresh = {
        **_baseline(connection, wanted.criteria, served, known=b""),
        "nvd_complete": served is not None and served.nvd_complete,
        "told": 0,
    }
    values = {"id": watch_id, "lineage": key.lineage, "made_by": by.maker, "made_at": now, **_columns(wanted), **fresh}
    connection.execute(insert(WATCHES).values(**values))
    _store_report(connection, watch_id, wanted)
    return _store_targets(connection, watch_id, wanted, key, now=now, entropy=entropy)


def stored_wanted(connection: Connection, watch_id: str, lineage: str, channels: Sequence[Channel]) -> Wanted:
    """What a watch asks for now, as the start of a change. Problem 404 if the owner of the key has none with this id."""
    row = owned_watch(connection, watch_id, lineage)
    addresses = {target_id: address_of(text, channels) for target_id, text in _addresses(connection, targets_of(row)).items()}
    return Wanted(
        name=row.name,
        criteria=read_criteria(row.criteria),
        webhook=addresses.get(row.webhook_id),
        email=addresses.get(row.email_id),
        follows=row.following is not None,
    )


def change_watch(
    connection: Connection, watch_id: str, wanted: Wanted, by: Owner, *, served: Served | None, now: datetime, entropy: Entropy
) -> StoredWatch:
    """Change a watch. CVEs that fit the new criteria already are not reported as news. Problem 404 if the key has no such watch.

    Who changes it is its maker from then on: a stranger's webhook stops with the key that brought it.
    """
    row = owned_watch(connection, watch_id, by.key.lineage)
    before = targets_of(row)
    columns = _columns(wanted)
    if columns["criteria"] != row.criteria:
        columns |= _baseline(connection, wanted.criteria, served, known=row.known)
    connection.execute(update(WATCHES).where(WATCHES.c.id == watch_id).values(made_by=by.maker, stopped_at=None, **columns))
    _store_report(connection, watch_id, wanted)
    stored = _store_targets(connection, watch_id, wanted, by.key, now=now, entropy=entropy)
    _release(connection, before, of_watch=watch_id)
    return stored


def delete_watch(connection: Connection, watch_id: str, lineage: str) -> None:
    """Delete a watch with its news and undelivered messages. Problem 404 if the owner of the key has none with this id."""
    row = owned_watch(connection, watch_id, lineage)
    connection.execute(ALERTS.delete().where(ALERTS.c.watch_id == watch_id))
    connection.execute(WATCH_NEWS.delete().where(WATCH_NEWS.c.watch_id == watch_id))
    connection.execute(WATCH_LINES.delete().where(WATCH_LINES.c.watch_id == watch_id))
    connection.execute(WATCHES.delete().where(WATCHES.c.id == watch_id))
    _release(connection, targets_of(row))


def list_watches(connection: Connection, lineage: str) -> WatchList:
    rows = connection.execute(watches_with_owner().where(WATCHES.c.lineage == lineage).order_by(WATCHES.c.made_at, WATCHES.c.id)).all()
    watches = tuple(_views(connection, rows))
    return WatchList(ok=True, count=len(watches), watches=watches)


def watches_with_owner() -> Select[Any]:
    return select(WATCHES, WATCH_OWNERS.c.paused_at).select_from(WATCHES.join(WATCH_OWNERS))


def _note_owner(connection: Connection, key: Key) -> None:
    if connection.scalar(select(WATCH_OWNERS.c.lineage).where(WATCH_OWNERS.c.lineage == key.lineage)) is None:
        connection.execute(insert(WATCH_OWNERS).values(lineage=key.lineage, ends_at=key.expires_at))


def owned_watch(connection: Connection, watch_id: str, lineage: str) -> Row[Any]:
    """The row of a watch. Problem 404 if the owner of the key has none with this id."""
    row = connection.execute(select(WATCHES).where(WATCHES.c.id == watch_id, WATCHES.c.lineage == lineage)).one_or_none()
    if row is None:
        raise Problem(404, "no_such_watch", "your key has no watch with this id; list_watches lists them")
    return row


def _columns(wanted: Wanted) -> dict[str, object]:
    criteria = wanted.criteria.model_dump_json(exclude_none=True).encode()
    return {"name": wanted.name, "criteria": criteria, "least_score": wanted.criteria.least_score}


def _baseline(connection: Connection, criteria: Watched, served: Served | None, *, known: bytes) -> dict[str, object]:
    if served is None:
        return {"known": known, "needs_baseline": True}
    return {"known": pack_known(unpack_known(known).union(numbers_of(connection, criteria, served.days))), "needs_baseline": False}


def _store_report(connection: Connection, watch_id: str, wanted: Wanted) -> None:
    if wanted.report is not None:
        following = FOLLOWING.dump_json(wanted.report.judge.following).decode()
        connection.execute(update(WATCHES).where(WATCHES.c.id == watch_id).values(following=following))
        store_lines(connection, watch_id, wanted.report.lines, wanted.report.judge)


def _addresses(connection: Connection, target_ids: Sequence[str]) -> dict[str | None, str]:
    rows = connection.execute(select(TARGETS).where(among(connection, TARGETS.c.id, target_ids))).all() if target_ids else []
    return {row.id: row.address for row in rows}


def targets_of(row: Row[Any]) -> list[str]:
    return [one for one in (row.webhook_id, row.email_id) if one is not None]


def _store_targets(connection: Connection, watch_id: str, wanted: Wanted, key: Key, *, now: datetime, entropy: Entropy) -> StoredWatch:
    by = Registrant(key.lineage, sender_of(key.lineage, ""), per_host=0, shared_hosts=frozenset())

    def claimed(address: Address | None) -> ClaimedTarget | None:
        return OUTBOX.claim(connection, address, by, now=now, entropy=entropy) if address else None

    webhook = claimed(wanted.webhook)
    email = claimed(wanted.email)
    links = {"webhook_id": webhook.id if webhook else None, "email_id": email.id if email else None}
    connection.execute(update(WATCHES).where(WATCHES.c.id == watch_id).values(**links))
    if email is not None:
        OUTBOX.ask_to_confirm(connection, email, now=now, watch_id=watch_id)
    row = connection.execute(watches_with_owner().where(WATCHES.c.id == watch_id)).one()
    return StoredWatch(next(_views(connection, [row])), webhook, email)


def _release(connection: Connection, target_ids: Sequence[str], *, of_watch: str | None = None) -> None:
    """Delete the targets that no watch uses any more; what waits for them from one watch is deleted if only it left them."""
    for target_id in target_ids:
        users = connection.scalars(
            select(WATCHES.c.id).where(or_(WATCHES.c.webhook_id == target_id, WATCHES.c.email_id == target_id))
        ).all()
        if not users:
            OUTBOX.delete_target(connection, target_id)
        elif of_watch is not None and of_watch not in users:
            connection.execute(ALERTS.delete().where(ALERTS.c.target_id == target_id, ALERTS.c.watch_id == of_watch))


def _views(connection: Connection, rows: Sequence[Row[Any]]) -> Iterator[Watch]:
    ids = sorted({one for row in rows for one in targets_of(row)})
    found = connection.execute(select(TARGETS).where(among(connection, TARGETS.c.id, ids))).all()
    targets = {target.id: target for target in found}
    pair = (ALERTS.c.watch_id, ALERTS.c.target_id)
    counted = connection.execute(select(*pair, func.count()).where(among(connection, pair[1], ids)).group_by(*pair))
    lines = select(WATCH_LINES.c.watch_id, func.count()).where(among(connection, WATCH_LINES.c.watch_id, [row.id for row in rows]))
    counts = {row.watch_id: row[1] for row in connection.execute(lines.group_by(WATCH_LINES.c.watch_id))}
    waiting = {(watch_id, target_id): count for watch_id, target_id, count in counted}
    for row in rows:
        criteria = read_criteria(row.criteria)
        yield Watch(
            watch_id=row.id,
            name=row.name,
            vendors=tuple(criteria.vendors or ()),
            products=tuple(criteria.products or ()),
            cve_ids=tuple(criteria.cve_ids or ()),
            least_score=row.least_score if row.following is None else None,
            report=_report_view(row.following, counts.get(row.id, 0)),
            criteria=criteria.sentences() if row.following is None else (),
            exposed=criteria.exposed,
            state="stopped" if row.stopped_at is not None else "active" if row.paused_at is None else "paused",
            made_at=row.made_at,
            made_by=Maker(row.made_by, "key", "", None).shown,  # its id; the tools ask campus about the rest
            told=row.told,
            last_news_at=row.last_news_at,
            targets=tuple(_target_view(targets[one], waiting.get((row.id, one), 0)) for one in targets_of(row)),
        )


def _report_view(following: str | None, lines: int) -> FollowedReport | None:
    return None if following is None else FollowedReport(lines=lines, least_epss=FOLLOWING.validate_json(following).least_epss)


def _target_view(row: Row[Any], undelivered: int) -> WatchTarget:
    state, reason = target_state(row, to_enable="call update_watch with this address again")
    return WatchTarget(kind=row.kind, address=masked_address(row.address), state=state, reason=reason, undelivered=undelivered)
