"""Archives KEV and its CVEs' EPSS of each edition: KEV as differences from one whole catalog a month, ranks where they do not follow."""

import zlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import anyio.to_thread
from pydantic import TypeAdapter
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from buildings.cve.arguments import number_of, spelled
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.ranking.edition import Edition, listing_days
from buildings.cve.ranking.formula import UNSCORED, RankedCve, RankedSet, order
from buildings.cve.tables import EditionSet
from campus.storage import Storage

ArchivedRanks = dict[str, RankedCve]
LONGEST_BASE = timedelta(days=30)
"""How long KEV is archived as differences from one whole catalog: that takes 2 KB a day instead of 33."""

LISTINGS: TypeAdapter[dict[str, KevEntry]] = TypeAdapter(dict[str, KevEntry])


@dataclass(frozen=True, kw_only=True)
class KevDifference:
    changed: dict[str, KevEntry]
    gone: list[str]


@dataclass(frozen=True, kw_only=True)
class LeadingScores:
    """What is archived of the ranked set: EPSS by ascending CVE number of KEV's CVEs and those that were removed from it.

    `ranks` has the ranks that do not follow from KEV and EPSS: of the CVEs that were removed, and of some in KEV; 0 for those left out.
    """

    removed: list[int]
    epss: list[float]
    ranks: dict[int, int]


Columns = tuple[list[int], list[float], list[float], list[int]]
COLUMNS: TypeAdapter[Columns] = TypeAdapter(Columns)
"""The same as older archives have it: the numbers that were removed, then EPSS, percentiles and ranks of all."""
LEADING: TypeAdapter[LeadingScores] = TypeAdapter(LeadingScores)
DIFFERENCE: TypeAdapter[KevDifference] = TypeAdapter(KevDifference)


async def edition_set(session: AsyncSession, edition: Edition, number: int) -> EditionSet:
    """What is archived of an edition: KEV as what is different from the last whole one of the month before, else whole."""
    first = edition.day - LONGEST_BASE
    whole = select(EditionSet).where(col(EditionSet.base_day).is_(None), col(EditionSet.day).between(first, edition.day))
    base = (await session.exec(whole.order_by(col(EditionSet.day).desc(), col(EditionSet.edition).desc()).limit(1))).first()
    return await anyio.to_thread.run_sync(_archived_set, edition, number, base)


def _archived_set(edition: Edition, number: int, base: EditionSet | None) -> EditionSet:
    kev = dict(edition.facts.kev)
    ranked = zlib.compress(LEADING.dump_json(_leading_scores(edition)), 9)
    if base is None:
        return EditionSet(day=edition.day, edition=number, ranked=ranked, kev=zlib.compress(LISTINGS.dump_json(kev), 9))
    before = _listings(base)
    changed = {cve_id: entry for cve_id, entry in kev.items() if before.get(cve_id) != entry}
    difference = zlib.compress(DIFFERENCE.dump_json(KevDifference(changed=changed, gone=sorted(before.keys() - kev.keys()))), 9)
    return EditionSet(day=edition.day, edition=number, base_day=base.day, base_edition=base.edition, ranked=ranked, kev=difference)


def _leading_scores(edition: Edition) -> LeadingScores:
    added = listing_days(edition.facts.kev)
    removed = [number_of(cve_id) for cve_id in edition.facts.removed if edition.ranked.find(cve_id)]
    leading = edition.ranked.only({*added, *removed})
    left_out = leading.left_out()
    computed = _ranks_within_kev(leading.numbers, leading.epss, added, day=edition.day, left_out=left_out)
    ranks = {number: rank for number, rank in zip(leading.numbers, leading.ranks, strict=True) if computed.get(number) != rank}
    return LeadingScores(removed=removed, epss=leading.epss.tolist(), ranks=ranks)


def _ranks_within_kev(
    numbers: Sequence[int], epss: Sequence[float], added: Mapping[int, date], *, day: date, left_out: Container[int]
) -> dict[int, int]:
    """The ranks of KEV's CVEs by number: no other CVE is before them, as long as EPSS gives none a probability of 1."""
    listed = [(number, score) for number, score in zip(numbers, epss, strict=True) if number in added and number not in left_out]
    rows = order([number for number, _ in listed], [score for _, score in listed], added, day=day)
    return {listed[row][0]: rank for rank, row in enumerate(rows, start=1)}


def _listings(row: EditionSet) -> dict[str, KevEntry]:
    return LISTINGS.validate_json(zlib.decompress(row.kev))


async def load_leading(storage: Storage, day: date, *, edition: int | None = None) -> tuple[ArchivedRanks, dict[str, KevEntry]] | None:
    """Ranks and EPSS of CVEs in KEV or removed from it, without percentiles, and KEV itself, as of an edition of a day, or its newest."""
    async with storage.read() as session:
        of_day = select(EditionSet).where(col(EditionSet.day) == day).order_by(col(EditionSet.edition).desc()).limit(1)
        row = (await session.exec(of_day if edition is None else of_day.where(col(EditionSet.edition) == edition))).first()
        base = await session.get(EditionSet, (row.base_day, row.base_edition)) if row and row.base_day else None
    if row is None or (row.base_day and base is None):
        return None
    return await anyio.to_thread.run_sync(_opened_set, row, base)


def _opened_set(row: EditionSet, base: EditionSet | None) -> tuple[ArchivedRanks, dict[str, KevEntry]]:
    catalog = _catalog(row, base)
    return _leading(zlib.decompress(row.ranked), catalog, day=row.day), catalog


def _leading(block: bytes, kev: Mapping[str, KevEntry], *, day: date) -> ArchivedRanks:
    """The ranks of an edition's set, in its present form or in one of the two of older archives."""
    added = listing_days(kev)
    if block.startswith(b"{"):
        stored = LEADING.validate_json(block)
        numbers = sorted({*added, *stored.removed})
        left_out = {number for number, rank in stored.ranks.items() if not rank}
        computed = _ranks_within_kev(numbers, stored.epss, added, day=day, left_out=left_out) | stored.ranks
        ranks = [computed[number] for number in numbers]
        return _ranks(numbers, stored.epss, ranks)
    if block.startswith(b"["):
        removed, epss, _, known = COLUMNS.validate_json(block)
        return _ranks(sorted({*added, *removed}), epss, known)
    whole = RankedSet.unpack(block)
    return _ranks(whole.numbers, whole.epss, whole.ranks)


def _ranks(numbers: Sequence[int], epss: Sequence[float], ranks: Sequence[int]) -> ArchivedRanks:
    rows = zip(numbers, epss, ranks, strict=True)
    return {spelled(number): RankedCve(rank, None if score == UNSCORED else score, None) for number, score, rank in rows if rank}


def _catalog(row: EditionSet, base: EditionSet | None) -> dict[str, KevEntry]:
    if base is None:
        return _listings(row)
    difference = DIFFERENCE.validate_json(zlib.decompress(row.kev))
    return {cve_id: entry for cve_id, entry in _listings(base).items() if cve_id not in difference.gone} | difference.changed
