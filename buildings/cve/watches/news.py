"""The news of watches: found in the transaction that stores a list, kept for 90 days, and polled.

Watches pause when their key ends, and stop when their maker does.

A list is stored together with the news that it brings and the messages that tell them: either all of it is on disk, or nothing. A
watch knows its CVEs, so that a list that is stored again, or by two processes, brings the same news once.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, bindparam, exists, func, insert, or_, select, update

from buildings.cve.ranking.edition import Edition
from buildings.cve.tables import ALERTS, OUTBOX, TARGETS, WATCH_NEWS, WATCH_OWNERS, WATCHES
from buildings.cve.watches.alerts import NEWS, PAUSED, pack_entries, unpack_entries
from buildings.cve.watches.lines import judge_again
from buildings.cve.watches.matching import NO_DIGEST, Matcher, pack_known, read_criteria, unpack_known
from buildings.cve.watches.models import News, NewsList
from buildings.cve.watches.store import delete_watch, owned_watch, targets_of, watches_with_owner
from campus.storage import Storage, among, in_snapshot, in_transaction

NEWS_RETENTION = timedelta(days=90)
ITEMS_PER_READ = 50
WATCHES_PER_READ = 250
OWNERS_PER_READ = 200
MOST_NEWS = 1_000  # CVEs in the news of one watch about one list. What else fits is news with the next list.
CHANGED = (WATCHES.c.known, WATCHES.c.nvd_complete, WATCHES.c.told, WATCHES.c.last_news_at)
CHANGE = (
    update(WATCHES)
    .where(WATCHES.c.id == bindparam("key"))
    .values(needs_baseline=False, **{column.name: bindparam(column.name, type_=column.type) for column in CHANGED})
)

KNOW = update(WATCHES).where(WATCHES.c.id == bindparam("key")).values(known=bindparam("known"), nvd_complete=True)


def read_news(connection: Connection, lineage: str, *, since: int, watch_id: str | None, limit: int) -> NewsList:
    """The news of a key's watches after a number, or of one of them: whole items of `limit` CVEs together, or one that has more."""
    if watch_id is not None:
        owned_watch(connection, watch_id, lineage)
    mine = and_(WATCHES.c.lineage == lineage, WATCH_NEWS.c.number > since)
    chosen = select(WATCH_NEWS, WATCHES.c.name).select_from(WATCH_NEWS.join(WATCHES)).where(mine).order_by(WATCH_NEWS.c.number)
    if watch_id is not None:
        chosen = chosen.where(WATCHES.c.id == watch_id)
    rows = connection.execute(chosen.limit(ITEMS_PER_READ + 1)).all()
    fits, total = 0, 0
    for row in rows[:ITEMS_PER_READ]:
        total += row.found
        if fits and total > limit:
            break
        fits += 1
    news = tuple(_news(row) for row in rows[:fits])
    return NewsList(ok=True, count=len(news), news=news, next=news[-1].number if news else since, more=len(rows) > fits)


def latest_news(connection: Connection, lineage: str, *, most: int) -> list[News]:
    joined = select(WATCH_NEWS, WATCHES.c.name).select_from(WATCH_NEWS.join(WATCHES)).where(WATCHES.c.lineage == lineage)
    return [_news(row) for row in connection.execute(joined.order_by(WATCH_NEWS.c.number.desc()).limit(most))]


@dataclass(frozen=True, kw_only=True)
class WatchChange:
    row: Row[Any]
    values: Mapping[str, Any]
    new: int
    entries: bytes


@dataclass(frozen=True)
class ListMatching:
    """Tells the watches what is news to them on a list, in the transaction that stores the list, once its rows are written."""

    edition: Edition
    now: datetime

    def __call__(self, connection: Connection) -> int:
        """Store the news and the messages that tell them; returns how many watches have news."""
        for table in (ALERTS, WATCH_NEWS):
            connection.execute(table.delete().where(table.c.at < self.now - NEWS_RETENTION))
        matcher = matcher_of(connection, self.edition)
        lasting = WATCHES.c.stopped_at.is_(None), WATCH_OWNERS.c.paused_at.is_(None), WATCH_OWNERS.c.ends_at > self.now
        return sum(self._tell(connection, matcher, rows) for rows in _parts(connection, *lasting)) if matcher else 0

    def _tell(self, connection: Connection, matcher: Matcher, rows: Sequence[Row[Any]]) -> int:
        changes = [change for row in rows if (change := self._change(connection, row, matcher))]
        if changes:
            connection.execute(CHANGE, [change.values for change in changes])
        self._store(connection, [change for change in changes if change.new])
        return sum(bool(change.new) for change in changes)

    def _change(self, connection: Connection, row: Row[Any], matcher: Matcher) -> WatchChange | None:
        if row.following is not None:
            entries = judge_again(connection, row, self.edition, matcher)
            return self._told(row, row.known, len(entries), pack_entries(entries)) if entries else None
        criteria = read_criteria(row.criteria)
        digest = matcher.digest(criteria)
        is_complete = self.edition.nvd.is_complete
        if row.known.startswith(digest) and not row.needs_baseline and row.nvd_complete == is_complete:
            return None
        known, fitting = unpack_known(row.known), matcher.fitting(criteria)
        unknown = fitting - known
        new = [] if row.needs_baseline else sorted(unknown, key=matcher.places.__getitem__)[:MOST_NEWS]
        known |= unknown if row.needs_baseline else set(new)
        packed = pack_known(known, digest if fitting <= known else NO_DIGEST)
        return self._told(row, packed, len(new), pack_entries(tuple(matcher.entries(new, criteria))) if new else b"")

    def _told(self, row: Row[Any], known: bytes, new: int, entries: bytes) -> WatchChange:
        values = {
            "key": row.id,
            "known": known,
            "nvd_complete": self.edition.nvd.is_complete,
            "told": row.told + new,
            "last_news_at": self.now if new else row.last_news_at,
        }
        return WatchChange(row=row, values=values, new=new, entries=entries)

    def _store(self, connection: Connection, changes: Sequence[WatchChange]) -> None:
        if not changes:
            return
        about = {"day": self.edition.day, "at": self.now}
        stored = insert(WATCH_NEWS).returning(WATCH_NEWS.c.watch_id, WATCH_NEWS.c.number)
        rows = [{"watch_id": change.row.id, "found": change.new, "entries": change.entries, **about} for change in changes]
        numbers = {row.watch_id: row.number for row in connection.execute(stored, rows)}
        alerts = [
            {"target_id": target, "kind": NEWS, "at": self.now, "watch_id": change.row.id, "news": numbers[change.row.id]}
            for change in changes
            for target in targets_of(change.row)
        ]
        OUTBOX.raise_alerts(connection, alerts, now=self.now)


def matcher_of(connection: Connection, edition: Edition) -> Matcher | None:
    """What matches watches with the rows that are stored, counting days from the list's; None if there are no watches."""
    lowest = connection.scalar(select(func.min(WATCHES.c.least_score)))
    return None if lowest is None else Matcher(connection, edition, lowest)


async def list_matching(storage: Storage, edition: Edition, last: Edition | None, *, now: datetime) -> ListMatching:
    """What tells the watches of a list; `last` is the one before it, whose rows are still stored.

    The names that NVD's first reading brought late are no news of CVEs that fitted by all else before: once all of NVD is read, what fits
    the list before is known.
    """
    if last is not None and edition.nvd.is_complete:
        await in_transaction(storage, partial(_know_late_names, edition=last))
    return ListMatching(edition, now)


def _know_late_names(connection: Connection, edition: Edition) -> None:
    late = WATCHES.c.nvd_complete.is_(False), WATCHES.c.needs_baseline.is_(False)
    if connection.scalar(select(exists().where(*late))) and (matcher := matcher_of(connection, edition)):
        for rows in _parts(connection, *late):
            fits = ((row, matcher.fitting(read_criteria(row.criteria))) for row in rows)
            known = [{"key": row.id, "known": pack_known(unpack_known(row.known) | numbers)} for row, numbers in fits]
            if known:
                connection.execute(KNOW, known)


def owners_of(storage: Storage) -> AsyncIterator[Sequence[str]]:
    """The lineages of the keys that own watches, in parts: a server follows them every minute, and all at once would delay its calls."""
    owner = WATCH_OWNERS.c.lineage
    return _in_parts(storage, owner, select(owner).where(exists().where(WATCHES.c.lineage == owner)))


def makers_of(storage: Storage) -> AsyncIterator[Sequence[str]]:
    maker = WATCHES.c.made_by
    return _in_parts(storage, maker, select(maker).where(WATCHES.c.stopped_at.is_(None)).group_by(maker))


async def _in_parts(storage: Storage, column: ColumnElement[str], chosen: Select[Any]) -> AsyncIterator[Sequence[str]]:
    last = ""

    def read(connection: Connection) -> Sequence[str]:
        return connection.scalars(chosen.where(column > last).order_by(column).limit(OWNERS_PER_READ)).all()

    while part := await in_snapshot(storage, read):
        yield part
        last = part[-1]


def stop_watches(connection: Connection, makers: Sequence[str], *, now: datetime) -> int:
    """Stop the watches of makers that have ended, and delete what they have not sent yet; returns how many."""
    lasting = among(connection, WATCHES.c.made_by, makers), WATCHES.c.stopped_at.is_(None)
    stopped = connection.scalars(update(WATCHES).where(*lasting).values(stopped_at=now).returning(WATCHES.c.id)).all()
    connection.execute(ALERTS.delete().where(among(connection, ALERTS.c.watch_id, stopped)))
    return len(stopped)


async def follow_owners(storage: Storage, ends: Mapping[str, datetime], owners: Sequence[str], *, now: datetime) -> int:
    """Store when owners' keys end: pause the watches of keys that have ended, and resume those of renewed ones; returns how many keys.

    Of a paused watch's targets each is told. `ends` has no entry for a key that was revoked: it ends now, or has ended.
    """
    changed = partial(_changed_owners, ends=ends, now=now)

    def work(connection: Connection) -> int:
        return sum(_follow(connection, row, ends_at, now) for row, ends_at in changed(connection, late))

    late = [row.lineage for row, _ in await in_snapshot(storage, partial(changed, owners=owners))]
    return await in_transaction(storage, work) if late else 0


def _changed_owners(
    connection: Connection, owners: Sequence[str], ends: Mapping[str, datetime], now: datetime
) -> list[tuple[Row[Any], datetime]]:
    owner = WATCH_OWNERS.c
    stored: Select[Any] = select(owner.lineage, owner.ends_at, owner.paused_at).where(among(connection, owner.lineage, owners))
    found = [(row, ends.get(row.lineage, min(row.ends_at, now))) for row in connection.execute(stored)]
    return [(row, ends_at) for row, ends_at in found if ends_at != row.ends_at or (ends_at <= now) != (row.paused_at is not None)]


def _follow(connection: Connection, row: Row[Any], ends_at: datetime, now: datetime) -> bool:
    has_ended = ends_at <= now
    mine = TARGETS.c.owner == row.lineage
    lasting = and_(WATCHES.c.lineage == row.lineage, WATCHES.c.stopped_at.is_(None))
    used = exists().where(lasting, or_(WATCHES.c.webhook_id == TARGETS.c.id, WATCHES.c.email_id == TARGETS.c.id))
    paused_at = (row.paused_at or now) if has_ended else None
    connection.execute(update(WATCH_OWNERS).where(WATCH_OWNERS.c.lineage == row.lineage).values(ends_at=ends_at, paused_at=paused_at))
    if has_ended and row.paused_at is None:
        targets = connection.scalars(select(TARGETS.c.id).where(mine, used, TARGETS.c.verified_at.is_not(None))).all()
        OUTBOX.raise_alerts(connection, [{"target_id": target, "kind": PAUSED, "at": now} for target in targets], now=now)
        reports = select(WATCHES.c.id).where(WATCHES.c.lineage == row.lineage, WATCHES.c.following.is_not(None))
        for watch_id in connection.scalars(reports).all():
            delete_watch(connection, watch_id, row.lineage)
    elif not has_ended:
        connection.execute(ALERTS.delete().where(ALERTS.c.kind == PAUSED, ALERTS.c.target_id.in_(select(TARGETS.c.id).where(mine))))
    return has_ended != (row.paused_at is not None)


def _parts(connection: Connection, *conditions: ColumnElement[bool]) -> Iterator[Sequence[Row[Any]]]:
    last = ""
    while True:
        chosen = watches_with_owner().where(WATCHES.c.id > last, *conditions)
        rows = connection.execute(chosen.order_by(WATCHES.c.id).limit(WATCHES_PER_READ)).all()
        yield rows
        if len(rows) < WATCHES_PER_READ:
            return
        last = rows[-1].id


def _news(row: Row[Any]) -> News:
    entries = unpack_entries(row.entries)
    return News(number=row.number, watch_id=row.watch_id, name=row.name, day=row.day, at=row.at, count=row.found, entries=entries)
