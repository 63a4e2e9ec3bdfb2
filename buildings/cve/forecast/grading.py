"""Grades past lists against what happened within 30 days after them. Pure: no clock, no network, no database."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from buildings.cve.arguments import number_of, spelled
from buildings.cve.forecast.formula import FORECAST_LENGTH, Order, Standings, window_of
from buildings.cve.forecast.models import Depth, Hit, Interval, ListResult, Precision, RankingRecord
from buildings.cve.ranking.edition import Edition

DEPTHS = (25, 100, 1_000)
SHOWN_LISTS = 60
DEVIATIONS = 1.959964  # Intervals of 95 % reach so many standard deviations from the middle.
PUBLISHED, BASELINE = "next_in_kev", "epss"  # The ranking whose names and hits are published.


@dataclass(frozen=True, slots=True)
class Event:
    """What makes a name come true: a CVE, by number, and the day on which CISA listed it or tied it to ransomware."""

    number: int
    day: date


@dataclass(frozen=True, kw_only=True)
class Grade:
    """What became of one ranking of one day; `is_final` when its 30 days are over.

    `hits` are the ranks, numbers and days of the names that came true; `events` the numbers of all that could have been named.
    `standings` are of the events that were ranked, empty while the order of all CVEs is not known. A list that `is_backfilled` was
    made when its 30 days had begun.
    """

    day: date
    ranking: str
    leading: int
    length: int
    hits: tuple[tuple[int, int, date], ...] = ()
    events: tuple[int, ...] = ()
    standings: Standings = ()
    is_final: bool = False
    is_backfilled: bool = False


Names = Mapping[tuple[date, str], Sequence[int]]  # The CVE numbers of the first ranks of graded lists, by day and ranking.


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
            name="next_in_kev", formula="0.5·logit(EPSS) − ln(age + 0.02) + 1.5·neighbor + min(4, rise)", event=LISTING, is_published=True
        ),
        GradedRanking(
            name="next_in_kev_with_vendor", formula="next_in_kev + ln(1 + number of KEV entries of the CVE's vendor)", event=LISTING
        ),
        GradedRanking(name=BASELINE, formula="EPSS", event=LISTING),
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
    first, last = window_of(order.day)
    came_true = {event.number: event.day for event in events if first <= event.day <= last}
    ranks = [(rank, number, came_true[number]) for rank, number in enumerate(order.numbers, 1) if number in came_true]
    is_complete = RANKINGS[order.ranking].is_complete
    return Grade(
        day=order.day,
        ranking=order.ranking,
        leading=order.leading,
        length=len(order.numbers),
        hits=tuple(ranks),
        events=tuple(number for _, number, _ in ranks) if is_complete else tuple(came_true),
        standings=_standings_of(ranks, len(order.numbers)) if is_complete else (),
        is_final=known_until > last,
        is_backfilled=order.made_on > order.day,
    )


def listing_events(edition: Edition) -> list[Event]:
    listed = [(cve_id, entry.date_added) for cve_id, entry in edition.facts.kev.items()]
    removed = [(cve_id, removal.date_added) for cve_id, removal in edition.facts.removed.items()]
    return [Event(number_of(cve_id), day) for cve_id, day in (*removed, *listed) if day]


def _standings_of(ranks: Sequence[tuple[int, int, date]], length: int) -> Standings:
    others = length - len(ranks)
    return tuple((number, 1 - (rank - 1 - earlier) / others) for earlier, (rank, number, _) in enumerate(ranks)) if others else ()


def with_standings(grade: Grade, standings: Mapping[str, Standings]) -> Grade:
    found = dict(standings.get(grade.ranking, ()))
    return replace(grade, standings=tuple((number, found[number]) for number in grade.events if number in found))


def precision_at(grades: Iterable[Grade]) -> tuple[Precision, ...]:
    """The precision of the published forecast down to each rank, from lists that were made in time and whose 30 days are over."""
    final = [grade for grade in grades if grade.is_final and grade.ranking == PUBLISHED and not grade.is_backfilled]
    names = [sum(1 for one in final if one.length >= rank) for rank in range(FORECAST_LENGTH + 1)]
    by_rank = defaultdict(list)
    for one in final:
        for rank, number, _ in one.hits:
            by_rank[rank].append(number)
    found, listed, named = [], 0, 0
    cves: set[int] = set()
    for rank in range(1, FORECAST_LENGTH + 1):
        listed += len(by_rank[rank])
        named += names[rank]
        cves.update(by_rank[rank])
        found.append(Precision(lists=len(final), names=named, listed=listed, cves_listed=len(cves), share=_share(listed, named)))
    return tuple(found)


def records_of(grades: Sequence[Grade], names: Names) -> tuple[RankingRecord, ...]:
    return tuple(_record(ranking, [grade for grade in grades if grade.ranking == ranking.name], names) for ranking in RANKINGS.values())


def hits_of(grades: Iterable[Grade]) -> tuple[Hit, ...]:
    named = defaultdict(list)
    for grade in grades:
        if grade.ranking == PUBLISHED and not grade.is_backfilled:
            for rank, number, day in grade.hits:
                if rank <= grade.leading:
                    named[number, day].append((grade.day, rank))
    found = [
        Hit(cve_id=spelled(number), listed_on=day, list_day=min(lists)[0], rank=min(lists)[1], lists=len(lists))
        for (number, day), lists in named.items()
    ]
    found.sort(key=lambda hit: (hit.listed_on, hit.list_day, -hit.rank), reverse=True)
    return tuple(found)


def lists_of(grades: Sequence[Grade]) -> tuple[ListResult, ...]:
    published = sorted((grade for grade in grades if grade.ranking == PUBLISHED), key=lambda one: one.day, reverse=True)
    by_epss = {grade.day: grade for grade in grades if grade.ranking == BASELINE}
    return tuple(_list_result(grade, by_epss.get(grade.day)) for grade in published[:SHOWN_LISTS])


def _list_result(grade: Grade, by_epss: Grade | None) -> ListResult:
    names = min(grade.leading, grade.length)
    listed = _listed(grade, names)
    others = names - listed
    return ListResult(
        list_day=grade.day,
        window_ends=window_of(grade.day)[1],
        backfilled=grade.is_backfilled,
        names=names,
        listed=listed,
        not_yet=0 if grade.is_final else others,
        missed=others if grade.is_final else 0,
        listed_by_epss=_listed(by_epss, names) if by_epss else None,
    )


def _listed(grade: Grade, names: int) -> int:
    return sum(1 for rank, *_ in grade.hits if rank <= names)


def _record(ranking: GradedRanking, grades: Sequence[Grade], names: Names) -> RankingRecord:
    final = [grade for grade in grades if grade.is_final]
    standings = tuple(standing for one in final for standing in one.standings)
    since = min((grade.day for grade in grades), default=None)
    return RankingRecord(
        ranking=ranking.name,
        formula=ranking.formula,
        event=ranking.event,
        published=ranking.is_published,
        since=since,
        first_window_ends=window_of(since)[1] if since else None,
        graded=len(final),
        waiting=len(grades) - len(final),
        events=sum(len(one.events) for one in final),
        event_cves=len({number for one in final for number in one.events}),
        depths=_depths(ranking, final, names),
        auc=round(sum(share for _, share in standings) / len(standings), 4) if standings else None,
        auc_interval=_mean_interval(standings),
        auc_cves=len({number for number, _ in standings}),
    )


def _depths(ranking: GradedRanking, final: Sequence[Grade], names: Names) -> tuple[Depth, ...]:
    if ranking.is_complete:
        return (_depth(25, [one.leading for one in final], final, names),)
    return tuple(_depth(first, [min(first, one.length) for one in final], final, names) for first in DEPTHS)


def _depth(first: int, lengths: Sequence[int], final: Sequence[Grade], names: Names) -> Depth:
    named = {number for one, length in zip(final, lengths, strict=True) for number in names.get((one.day, one.ranking), ())[:length]}
    hits = [number for one, length in zip(final, lengths, strict=True) for rank, number, _ in one.hits if rank <= length]
    events = {number for one in final for number in one.events}
    pairs = sum(lengths)
    event_pairs = sum(len(one.events) for one in final)
    return Depth(
        first=first,
        names=pairs,
        hits=len(hits),
        cves=len(named),
        cves_hit=len(set(hits)),
        precision=_share(len(hits), pairs),
        precision_interval=wilson(len(hits), pairs, observations=len(named)),
        recall=_share(len(hits), event_pairs),
        recall_interval=wilson(len(hits), event_pairs, observations=len(events)),
    )


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def wilson(part: int, whole: int, *, observations: int) -> Interval | None:
    """Wilson's 95 % interval of a share that was counted on `observations` different CVEs, though in `whole` places."""
    if not whole or not observations:
        return None
    share = part / whole
    square = DEVIATIONS**2
    middle = (share + square / (2 * observations)) / (1 + square / observations)
    reach = DEVIATIONS / (1 + square / observations) * math.sqrt(share * (1 - share) / observations + square / (4 * observations**2))
    return Interval(low=round(max(middle - reach, 0.0), 6), high=round(min(middle + reach, 1.0), 6))


def _mean_interval(standings: Standings) -> Interval | None:
    """The 95 % interval of the mean standing, by CVE: the standings of one CVE in several lists are not independent."""
    by_cve = defaultdict(list)
    for number, share in standings:
        by_cve[number].append(share)
    clusters = len(by_cve)
    if clusters < 2:
        return None
    mean = sum(share for _, share in standings) / len(standings)
    squares = sum(sum(share - mean for share in shares) ** 2 for shares in by_cve.values())
    reach = DEVIATIONS * math.sqrt(clusters / (clusters - 1) * squares) / len(standings)
    return Interval(low=round(max(mean - reach, 0.0), 4), high=round(min(mean + reach, 1.0), 4))
