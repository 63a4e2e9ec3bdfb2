"""The news of watches: found in the transaction that stores a list, kept for 90 days, polled; and watches paused when their key ends.

A list is stored together with the news that it brings and the messages that tell them: either all of it is on disk, or nothing. A
watch knows its CVEs, so that a list that is stored again, or by two processes, brings the same news once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import anyio.to_thread
from sqlalchemy import Connection, Row, and_, bindparam, func, insert, select, update

from buildings.cve.edition import Edition
from buildings.cve.tables import ALERTS, OUTBOX, TARGETS, WATCH_NEWS, WATCH_OWNERS, WATCHES
from buildings.cve.watch_alerts import NEWS, PAUSED, pack_entries, unpack_entries
from buildings.cve.watch_matching import CRITERIA, Criteria, Matcher, pack_numbers, unpack_numbers
from buildings.cve.watch_models import News, NewsList
from buildings.cve.watches import owned_watch, targets_of, watches_with_owner
from campus import Storage, among, in_snapshot, in_transaction

NEWS_RETENTION = timedelta(days=90)
MOST_POLLED = 1_000
"""CVEs in one answer of a poll, unless the first item alone has more."""
ITEMS_PER_READ = 50
WATCHES_PER_READ = 500
CHANGED = (WATCHES.c.known, WATCHES.c.nvd_complete, WATCHES.c.told, WATCHES.c.last_news_at)
CHANGE = (
    update(WATCHES)
    .where(WATCHES.c.id == bindparam("key"))
    .values(needs_baseline=False, **{column.name: bindparam(column.name, type_=column.type) for column in CHANGED})
)


def read_news(connection: Connection, lineage: str, *, since: int, watch_id: str | None) -> NewsList:
    """The news of a key's watches after a number, or of one of them; about 1,000 CVEs at most."""
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
        if fits and total > MOST_POLLED:
            break
        fits += 1
    news = tuple(_news(row) for row in rows[:fits])
    return NewsList(ok=True, count=len(news), news=news, next=news[-1].number if news else since, more=len(rows) > fits)


def latest_news(connection: Connection, lineage: str, *, most: int) -> list[News]:
    """The latest news of a key's watches, the newest first."""
    joined = select(WATCH_NEWS, WATCHES.c.name).select_from(WATCH_NEWS.join(WATCHES)).where(WATCHES.c.lineage == lineage)
    return [_news(row) for row in connection.execute(joined.order_by(WATCH_NEWS.c.number.desc()).limit(most))]


@dataclass(frozen=True)
class ListMatching:
    """Tells the watches what is news to them on a list, in the transaction that stores the list."""

    matcher: Matcher
    now: datetime

    def __call__(self, connection: Connection) -> int:
        """Store the news and the messages that tell them; returns how many watches have news."""
        for table in (ALERTS, WATCH_NEWS):
            connection.execute(table.delete().where(table.c.at < self.now - NEWS_RETENTION))
        return sum(self._tell(connection, rows) for rows in _active(connection, now=self.now))

    def _tell(self, connection: Connection, rows: Sequence[Row[Any]]) -> int:
        changes = [change for row in rows if (change := self._change(connection, row))]
        if changes:
            connection.execute(CHANGE, changes)
        return sum(change["last_news_at"] == self.now for change in changes)

    def _change(self, connection: Connection, row: Row[Any]) -> dict[str, Any] | None:
        """What becomes of a watch; stores its news. None if it stays as it is."""
        criteria = CRITERIA.validate_json(row.criteria)
        known = unpack_numbers(row.known)
        is_complete = self.matcher.edition.nvd.is_complete
        # names that NVD's first reading brought late are no news of CVEs that reached the score before
        needs_baseline = row.needs_baseline or (is_complete and not row.nvd_complete)
        new = self.matcher.news(criteria, known, needs_baseline=needs_baseline)
        if not new and not needs_baseline:
            return None
        if new:
            self._store(connection, row, criteria, new)
        return {
            "key": row.id,
            "known": pack_numbers(known),
            "nvd_complete": is_complete,
            "told": row.told + len(new),
            "last_news_at": self.now if new else row.last_news_at,
        }

    def _store(self, connection: Connection, row: Row[Any], criteria: Criteria, new: Sequence[int]) -> None:
        entries = pack_entries([self.matcher.entry(number, criteria) for number in new])
        values = {"watch_id": row.id, "day": self.matcher.edition.day, "at": self.now, "found": len(new), "entries": entries}
        number = connection.scalar(insert(WATCH_NEWS).values(**values).returning(WATCH_NEWS.c.number))
        about = {"kind": NEWS, "at": self.now, "watch_id": row.id, "news": number}
        OUTBOX.raise_alerts(connection, [{"target_id": one, **about} for one in targets_of(row)], now=self.now)


async def list_matching(storage: Storage, edition: Edition, last: Edition | None, *, now: datetime) -> ListMatching:
    """The matching of a list, prepared outside of the transaction as far as possible; `last` is the list that was served before."""
    lowest = await in_snapshot(storage, lambda connection: connection.scalar(select(func.min(WATCHES.c.least_score))))
    matcher = Matcher(edition, last)
    if lowest is not None:
        await anyio.to_thread.run_sync(matcher.prepare, lowest)
    return ListMatching(matcher, now)


async def owners_of(storage: Storage) -> Sequence[str]:
    """The lineages of the keys that own watches."""
    return await in_snapshot(storage, lambda connection: connection.scalars(select(WATCHES.c.lineage).distinct()).all())


async def follow_owners(storage: Storage, ends: Mapping[str, datetime], owners: Sequence[str], *, now: datetime) -> int:
    """Store when owners' keys end: pause the watches of keys that have ended, and resume those of renewed ones; returns how many keys.

    Of a paused watch's targets each is told. `ends` has no entry for a key that was revoked: it ends now, or has ended.
    """

    def work(connection: Connection) -> int:
        rows = connection.execute(select(WATCH_OWNERS).where(among(connection, WATCH_OWNERS.c.lineage, owners))).all()
        return sum(_follow(connection, row, ends.get(row.lineage, min(row.ends_at, now)), now) for row in rows)

    return await in_transaction(storage, work)


def _follow(connection: Connection, row: Row[Any], ends_at: datetime, now: datetime) -> bool:
    has_ended = ends_at <= now
    mine = TARGETS.c.owner == row.lineage
    if ends_at == row.ends_at and has_ended == (row.paused_at is not None):
        return False
    paused_at = (row.paused_at or now) if has_ended else None
    connection.execute(update(WATCH_OWNERS).where(WATCH_OWNERS.c.lineage == row.lineage).values(ends_at=ends_at, paused_at=paused_at))
    if has_ended and row.paused_at is None:
        targets = connection.scalars(select(TARGETS.c.id).where(mine, TARGETS.c.verified_at.is_not(None))).all()
        OUTBOX.raise_alerts(connection, [{"target_id": one, "kind": PAUSED, "at": now} for one in targets], now=now)
    elif not has_ended:
        connection.execute(ALERTS.delete().where(ALERTS.c.kind == PAUSED, ALERTS.c.target_id.in_(select(TARGETS.c.id).where(mine))))
    return has_ended != (row.paused_at is not None)


def _active(connection: Connection, *, now: datetime) -> Iterator[Sequence[Row[Any]]]:
    """The watches whose key has not ended, in parts."""
    last = ""
    while True:
        chosen = watches_with_owner().where(WATCHES.c.id > last, WATCH_OWNERS.c.paused_at.is_(None), WATCH_OWNERS.c.ends_at > now)
        rows = connection.execute(chosen.order_by(WATCHES.c.id).limit(WATCHES_PER_READ)).all()
        yield rows
        if len(rows) < WATCHES_PER_READ:
            return
        last = rows[-1].id


def _news(row: Row[Any]) -> News:
    entries = unpack_entries(row.entries)
    return News(number=row.number, watch_id=row.watch_id, name=row.name, day=row.day, at=row.at, count=row.found, entries=entries)
