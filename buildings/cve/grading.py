"""Grades past lists against what happened within 30 days after them. Pure: no clock, no network, no database."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from buildings.cve.arguments import number_of, spelled
from buildings.cve.edition import Edition
from buildings.cve.forecast import FORECAST_LENGTH, Order, window_of
from buildings.cve.forecast_models import Depth, Hit, Precision, RankingRecord

DEPTHS = (25, 100, 1_000)
SHOWN_HITS = 100
PUBLISHED = "next_in_kev"
"""The ranking whose names and hits are published."""


@dataclass(frozen=True, slots=True)
class Event:
    """What makes a name come true: a CVE, by number, and the day on which CISA listed it or tied it to ransomware."""

    number: int
    day: date


@dataclass(frozen=True, kw_only=True)
class Grade:
    """What became of one ranking of one day; `is_final` when its 30 days are over.

    `hits` are the ranks, numbers and days of the names that came true; `events` counts all that could have been named.
    `pairs_right` of `pairs` pairs of a CVE that came true and one that did not are in the right order; both 0 where only the first
    ranks are kept.
    """

    day: date
    ranking: str
    leading: int
    length: int
    hits: tuple[tuple[int, int, date], ...] = ()
    events: int = 0
    pairs_right: int = 0
    pairs: int = 0
    is_final: bool = False


@dataclass(frozen=True, kw_only=True)
class GradedRanking:
    """A ranking that is graded: its formula and event in words, and whether its lists are published.

    `is_complete`: every CVE that could come true is ranked, so that an event outside of the order counts for nothing.
    """

    name: str
    formula: str
    event: str
    is_published: bool = False
    is_complete: bool = False


LISTING = "CISA adds the CVE to KEV on one of the 30 days after the list."
FLIP = "CISA ties the CVE, which it had listed before, to ransomware within the 30 days after the list."
RANKINGS: Mapping[str, GradedRanking] = {
    one.name: one
    for one in (
        GradedRanking(
            name="next_in_kev",
            formula="0.5·logit(EPSS) − ln(age + 0.02) + 1.5·neighbor + min(4, rise)",
            event=LISTING,
            is_published=True,
        ),
        GradedRanking(
            name="next_in_kev_with_vendor",
            formula="next_in_kev + ln(1 + number of KEV entries of the CVE's vendor)",
            event=LISTING,
        ),
        GradedRanking(name="epss", formula="EPSS", event=LISTING),
        GradedRanking(name="brief", formula="25·KEV + 25·EPSS + 50·KEV·2^(−d/30)", event=FLIP, is_published=True, is_complete=True),
        GradedRanking(
            name="brief_with_vendor",
            formula="brief + 25·(known + 0.4)/(listed + 2), where CISA ties `known` of the vendor's `listed` KEV entries to ransomware",
            event=FLIP,
            is_complete=True,
        ),
    )
}


def grade_of(order: Order, events: Iterable[Event], *, known_until: date) -> Grade:
    """Grade one ranking of one day; all events up to and including `known_until` are known."""
    first, last = window_of(order.day)
    came_true = {event.number: event.day for event in events if first <= event.day <= last}
    ranks = [(rank, number, came_true[number]) for rank, number in enumerate(order.numbers, 1) if number in came_true]
    is_complete = RANKINGS[order.ranking].is_complete
    right, pairs = _pairs([rank for rank, *_ in ranks], len(order.numbers)) if is_complete else (0, 0)
    return Grade(
        day=order.day,
        ranking=order.ranking,
        leading=order.leading,
        length=len(order.numbers),
        hits=tuple(ranks),
        events=len(ranks) if is_complete else len(came_true),
        pairs_right=right,
        pairs=pairs,
        is_final=known_until > last,
    )


def listing_events(edition: Edition) -> list[Event]:
    """Every listing in KEV that an edition knows, also of CVEs that CISA removed again."""
    listed = [(cve_id, entry.date_added) for cve_id, entry in edition.facts.kev.items()]
    removed = [(cve_id, removal.date_added) for cve_id, removal in edition.facts.removed.items()]
    return [Event(number_of(cve_id), day) for cve_id, day in (*removed, *listed)]


def _pairs(ranks: Sequence[int], length: int) -> tuple[int, int]:
    """How many pairs of a rank in `ranks`, ascending, and another of all `length` ranks have the former first, and how many there are."""
    others = length - len(ranks)
    return sum(others - (rank - 1 - earlier) for earlier, rank in enumerate(ranks)), len(ranks) * others


def precision_at(grades: Iterable[Grade], *, length: int = FORECAST_LENGTH) -> tuple[Precision, ...]:
    """The precision of the published forecast down to each rank, from lists whose 30 days are over."""
    final = [one for one in grades if one.is_final and one.ranking == PUBLISHED]
    at_rank = [0] * (length + 1)
    names = [sum(1 for one in final if one.length >= rank) for rank in range(length + 1)]
    for one in final:
        for rank, *_ in one.hits:
            if rank <= length:
                at_rank[rank] += 1
    found, listed, named = [], 0, 0
    for rank in range(1, length + 1):
        listed += at_rank[rank]
        named += names[rank]
        found.append(Precision(lists=len(final), names=named, listed=listed, share=_share(listed, named)))
    return tuple(found)


def records_of(grades: Sequence[Grade]) -> tuple[RankingRecord, ...]:
    """The results of every ranking."""
    return tuple(_record(ranking, [one for one in grades if one.ranking == ranking.name]) for ranking in RANKINGS.values())


def hits_of(grades: Iterable[Grade]) -> tuple[Hit, ...]:
    """The newest names of the published forecasts that came true."""
    found = [
        Hit(cve_id=spelled(number), list_day=one.day, rank=rank, listed_on=day)
        for one in grades
        if one.ranking == PUBLISHED
        for rank, number, day in one.hits
        if rank <= one.leading
    ]
    found.sort(key=lambda hit: (hit.listed_on, hit.list_day, -hit.rank), reverse=True)
    return tuple(found[:SHOWN_HITS])


def _record(ranking: GradedRanking, grades: Sequence[Grade]) -> RankingRecord:
    final = [one for one in grades if one.is_final]
    events = sum(one.events for one in final)
    pairs = sum(one.pairs for one in final)
    return RankingRecord(
        ranking=ranking.name,
        formula=ranking.formula,
        event=ranking.event,
        published=ranking.is_published,
        since=min((one.day for one in grades), default=None),
        graded=len(final),
        waiting=len(grades) - len(final),
        events=events,
        depths=_depths(ranking, final, events),
        auc=round(sum(one.pairs_right for one in final) / pairs, 4) if pairs else None,
    )


def _depths(ranking: GradedRanking, final: Sequence[Grade], events: int) -> tuple[Depth, ...]:
    if ranking.is_complete:
        return (_depth(25, [one.leading for one in final], final, events),)
    return tuple(_depth(first, [min(first, one.length) for one in final], final, events) for first in DEPTHS)


def _depth(first: int, lengths: Sequence[int], final: Sequence[Grade], events: int) -> Depth:
    names = sum(lengths)
    hits = sum(rank <= length for one, length in zip(final, lengths, strict=True) for rank, *_ in one.hits)
    return Depth(first=first, names=names, hits=hits, precision=_share(hits, names), recall=_share(hits, events))


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None
