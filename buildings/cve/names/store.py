"""The names in the database: replaced by ecosystem or by record, and resolved for a whole report at once."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection
from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from buildings.cve.archive.lists import failures, forget_failure, read_state
from buildings.cve.arguments import spelled
from buildings.cve.feeds.download import Copy
from buildings.cve.names.osv import FEED, OVERLAP, Records, cve_in
from buildings.cve.tables import ALIASES, Alias, AliasSource, FeedState
from campus import Problem
from campus.storage import Storage, among, in_snapshot, insert_columns

MOST_RECENT = 20_000
SHOWN_CVES = 50
STALE_NAMES = timedelta(days=3)


async def resolve(storage: Storage, names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The numbers of the CVEs that names of other schemes stand for, upper or lower case, all of them; without those of no known CVE.

    One query for all names. Nobody else is asked.
    """
    found: dict[str, tuple[int, ...]] = {}
    written: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        if number := cve_in(name):
            found[name] = (number,)
        else:
            written.setdefault(name.upper(), []).append(name)
    for key, numbers in (await in_snapshot(storage, partial(_numbers_of, names=written)) if written else {}).items():
        found |= dict.fromkeys(written[key], tuple(sorted(numbers)))
    return found


async def the_cve(storage: Storage, name: str) -> str:
    """The CVE that a name stands for; that of a CVE is itself. Raises Problem 404 if there is none, or not only one."""
    if name.startswith("CVE-"):
        return name
    cve_ids = [spelled(number) for number in (await resolve(storage, [name])).get(name, ())]
    if len(cve_ids) == 1:
        return cve_ids[0]
    if cve_ids:
        shown = ", ".join(cve_ids[:SHOWN_CVES])
        raise Problem(404, "no_cve_for_name", f"{name} stands for {len(cve_ids):,} CVEs, ask for one of them: {shown}")
    known = names_in_words(await ecosystem_states(storage))
    raise Problem(404, "no_cve_for_name", f"no CVE is known that {name} stands for; {known}")


def _numbers_of(connection: Connection, *, names: Iterable[str]) -> dict[str, set[int]]:
    numbers: dict[str, set[int]] = {}
    for name, number in connection.execute(select(ALIASES.c.id, ALIASES.c.number).where(among(connection, ALIASES.c.id, names))):
        numbers.setdefault(name, set()).add(number)
    return numbers


class Ecosystem(NamedTuple):
    """How far an ecosystem was read, and why its newest records are not in use, if they are not."""

    read: AliasSource
    failure: str | None


async def ecosystem_states(storage: Storage) -> list[Ecosystem]:
    failed = {failure.feed: failure.reason for failure in await failures(storage)}
    async with storage.read() as session:
        rows = await session.exec(select(AliasSource).order_by(col(AliasSource.ecosystem)))
        return [Ecosystem(row, failed.get(feed_of(row.ecosystem))) for row in rows]


def names_in_words(states: Sequence[Ecosystem]) -> str:
    """Which names are known, and since when those that are held have not been renewed: for operators and for answers alike."""
    if not states:
        return "no names of other schemes were read"
    held = [
        f"those of {read.ecosystem} are of {read.newest:%Y-%m-%d}, since newer ones cannot be used" for read, failure in states if failure
    ]
    count, newest = sum(read.entries for read, _ in states), max(read.newest for read, _ in states)
    known = f"{count:,} records of OSV name a CVE, as of {newest:%Y-%m-%d}: {', '.join(read.ecosystem for read, _ in states)}"
    return "; ".join([known, *held])


def about_names(states: Sequence[Ecosystem]) -> str:
    """What an answer says of the names in it, with the credit that their licenses ask for."""
    credit = "Identifiers of other schemes are resolved with OSV.dev's records, of the GitHub Advisory Database and others (CC-BY 4.0)"
    return f"{credit}: {names_in_words(states)}."


def feed_of(ecosystem: str) -> str:
    return f"{FEED} {ecosystem}"


async def load_source(storage: Storage, ecosystem: str) -> AliasSource | None:
    async with storage.read() as session:
        return await session.get(AliasSource, ecosystem)


async def stored_records(storage: Storage, ecosystem: str) -> set[str]:
    """The names of the records that name a CVE."""
    async with storage.read() as session:
        rows = await session.exec(select(Alias.source).where(_of(ecosystem)).distinct())
        return {source.partition("/")[2] for source in rows}


async def store_whole(storage: Storage, ecosystem: str, records: Records, *, now: datetime) -> None:
    """Replace all names of an ecosystem."""
    assert records.newest, "an ecosystem has records"
    async with storage.write() as session:
        await session.exec(delete(Alias).where(_of(ecosystem)))
        await _add(session, ecosystem, records)
        await _note_read(session, ecosystem, records.entries, records.changed, newest=records.newest, read_at=now, whole_at=now)
        await session.merge(read_state(feed_of(ecosystem), None))


async def store_changes(storage: Storage, used: AliasSource, records: Records, *, lost: int, added: int, copy: Copy, now: datetime) -> None:
    """Replace the names that the changed records of an ecosystem give."""
    newest = max(records.newest or used.newest, used.newest)
    known = {name: datetime.fromisoformat(at) for name, at in json.loads(used.recent).items()}
    sources = [f"{used.ecosystem}/{name}" for name in records.pairs]
    async with storage.write() as session:
        connection = await session.connection()
        await connection.run_sync(lambda sync: sync.execute(ALIASES.delete().where(among(sync, ALIASES.c.source, sources))))
        await _add(session, used.ecosystem, records)
        entries, changed = used.entries + added - lost, known | records.changed
        await _note_read(session, used.ecosystem, entries, changed, newest=newest, read_at=now, whole_at=used.whole_at)
        await session.merge(read_state(feed_of(used.ecosystem), copy))


async def note_unchanged(storage: Storage, ecosystem: str, *, now: datetime) -> None:
    async with storage.write() as session:
        (await session.get_one(AliasSource, ecosystem)).read_at = now
    await forget_failure(storage, feed_of(ecosystem))


async def forget_others(storage: Storage, ecosystems: Collection[str]) -> None:
    """Delete what is stored of ecosystems that are no longer read."""
    async with storage.read() as session:
        stored = {row.ecosystem for row in await session.exec(select(AliasSource))}
        stored |= {row.name.partition(" ")[2] for row in await session.exec(select(FeedState)) if row.name.startswith(f"{FEED} ")}
    if not (others := stored - set(ecosystems)):
        return
    async with storage.write() as session:
        for ecosystem in others:
            await session.exec(delete(Alias).where(_of(ecosystem)))
            await session.exec(delete(AliasSource).where(col(AliasSource.ecosystem) == ecosystem))
            await session.exec(delete(FeedState).where(col(FeedState.name) == feed_of(ecosystem)))


async def _add(session: AsyncSession, ecosystem: str, records: Records) -> None:
    rows = [(name, number, f"{ecosystem}/{record}") for record, pairs in records.pairs.items() for name, number in pairs]
    if rows:
        await (await session.connection()).run_sync(insert_columns, ALIASES, *zip(*rows, strict=True))


async def _note_read(
    session: AsyncSession,
    ecosystem: str,
    entries: int,
    changed: Mapping[str, datetime],
    *,
    newest: datetime,
    read_at: datetime,
    whole_at: datetime,
) -> None:
    recent = {name: at.isoformat() for name, at in changed.items() if at > newest - OVERLAP}
    text = json.dumps(recent if len(recent) <= MOST_RECENT else {})
    row = AliasSource(ecosystem=ecosystem, entries=entries, newest=newest, recent=text, read_at=read_at, whole_at=whole_at)
    await session.merge(row)


def _of(ecosystem: str) -> Any:
    return col(Alias.source).startswith(f"{ecosystem}/", autoescape=True)
