"""Archives KEV and its CVEs' EPSS of each edition: KEV as what changed since the edition before, ranks and EPSS whole."""

from collections.abc import Mapping
from datetime import date
from itertools import repeat

import anyio.to_thread
from pydantic import TypeAdapter
from sqlalchemy import Connection, func, or_, select

from buildings.cve.arguments import number_of, spelled
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.formula import RankedCve
from buildings.cve.tables import BRIEFS, EDITION_CVES, KEV_CHANGES
from campus.storage import Storage, in_snapshot, insert_columns

ArchivedRanks = dict[str, RankedCve]
Place = tuple[date, int]
"""A day and an edition: the editions in their order."""
ENTRIES_AT_ONCE = 100
"""KEV is read in pieces of so many entries: reading it at once stops the whole process for 12 ms."""
ENTRY: TypeAdapter[KevEntry] = TypeAdapter(KevEntry)
ENTRIES: TypeAdapter[list[KevEntry]] = TypeAdapter(list[KevEntry])
CHANGE = KEV_CHANGES.c


def written(kev: Mapping[str, KevEntry]) -> dict[int, str | None]:
    """KEV's entries as they are stored, by number."""
    return {number_of(cve_id): ENTRY.dump_json(entry).decode() for cve_id, entry in kev.items()}


def steps_between(before: Mapping[int, str | None], now: Mapping[int, str | None]) -> dict[int, str | None]:
    """What is another now than before, with its value now; None where there is none any more."""
    changed = {number: text for number, text in now.items() if before.get(number) != text}
    return changed | {number: None for number in before if number not in now}


def read_entries(texts: list[str]) -> dict[str, KevEntry]:
    pieces = (texts[start : start + ENTRIES_AT_ONCE] for start in range(0, len(texts), ENTRIES_AT_ONCE))
    return {entry.cve_id: entry for piece in pieces for entry in ENTRIES.validate_json(f"[{','.join(piece)}]")}


def archive(connection: Connection, edition: Edition, number: int) -> None:
    """Store what belongs to an edition; KEV in the editions after it stays what it is."""
    place = edition.day, number
    leading = edition.ranked.only({*map(number_of, edition.facts.kev), *map(number_of, edition.facts.removed)})
    insert_columns(
        connection, EDITION_CVES, repeat(place[0]), repeat(place[1]), leading.numbers, leading.ranks, leading.shown(leading.epss)
    )
    before = _texts(connection, _before(place))
    steps = steps_between(before, written(edition.facts.kev))
    _insert(connection, place, steps)
    if following := _following(connection, place):
        kept = set(connection.scalars(select(CHANGE.number).where(CHANGE.day == following[0], CHANGE.edition == following[1])))
        _insert(connection, following, {one: before.get(one) for one in steps if one not in kept})


def _insert(connection: Connection, place: Place, steps: Mapping[int, str | None]) -> None:
    insert_columns(connection, KEV_CHANGES, steps, repeat(place[0]), repeat(place[1]), steps.values())


def _before(place: Place) -> Place:
    return place[0], place[1] - 1


def _following(connection: Connection, place: Place) -> Place | None:
    day, edition = BRIEFS.c.day, BRIEFS.c.edition
    later = or_(day > place[0], (day == place[0]) & (edition > place[1]))
    row = connection.execute(select(day, edition).where(later).order_by(day, edition).limit(1)).first()
    return (row.day, row.edition) if row else None


def _texts(connection: Connection, place: Place) -> dict[int, str]:
    """KEV's entries as stored in an edition, or in the last one before it, by number."""
    in_order = func.row_number().over(partition_by=CHANGE.number, order_by=(CHANGE.day.desc(), CHANGE.edition.desc())).label("place")
    until = or_(CHANGE.day < place[0], (CHANGE.day == place[0]) & (CHANGE.edition <= place[1]))
    changes = select(CHANGE.number, CHANGE.entry, in_order).where(until).subquery()
    last = select(changes.c.number, changes.c.entry).where(changes.c.place == 1, changes.c.entry.is_not(None))
    return dict(connection.execute(last.order_by(changes.c.number)).all())


async def load_leading(storage: Storage, day: date, *, edition: int | None = None) -> tuple[ArchivedRanks, dict[str, KevEntry]] | None:
    """Ranks and EPSS of CVEs in KEV or removed from it, without percentiles, and KEV itself, as of an edition of a day, or its newest."""
    cves = EDITION_CVES.c

    def read(connection: Connection) -> tuple[ArchivedRanks, list[str]] | None:
        wanted = edition or connection.scalar(select(func.max(cves.edition)).where(cves.day == day))
        rows = connection.execute(select(cves.number, cves.rank, cves.epss).where(cves.day == day, cves.edition == wanted)).all()
        ranks = {spelled(number): RankedCve(rank, epss, None) for number, rank, epss in rows if rank}
        return (ranks, list(_texts(connection, (day, wanted)).values())) if rows else None

    found = await in_snapshot(storage, read)
    return (found[0], await anyio.to_thread.run_sync(read_entries, found[1])) if found else None
