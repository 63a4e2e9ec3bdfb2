"""What changed between the lists of two days, and why. Pure: from the two briefs, and what is archived of each day's ranked set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from pydantic import Field

from buildings.cve.feeds.kev import KevEntry
from buildings.cve.models import Answer, Brief, Factors, Part
from buildings.cve.ranking import RankedCve, factors_of
from buildings.cve.results import DECIMALS

Reason = Literal[
    "listed",
    "removed",
    "listing_day_edited",
    "epss_rose",
    "epss_fell",
    "aged",
    "overtook",
    "overtaken",
    "ransomware_reported",
    "ransomware_withdrawn",
    "due_date_edited",
]


class Change(Part):
    """One CVE that entered the list, left it, moved, or whose facts were edited."""

    cve_id: str = Field(description="CVE identifier in the form CVE-<year>-<number>.")
    vendor: str | None = Field(description="Vendor name, from KEV, else from NVD; null if neither has it.")
    product: str | None = Field(description="Product name, from KEV, else from NVD; null if neither has it.")
    rank_before: int | None = Field(description="Rank on the earlier day; null if KEV had never listed it by then.")
    rank_after: int | None = Field(description="Rank on the later day; null if CISA removed it from KEV and EPSS has no score for it.")
    score_before: float | None = Field(description="Score on the earlier day; null where the rank is.")
    score_after: float | None = Field(description="Score on the later day; null where the rank is.")
    points: Factors | None = Field(description="Change of each factor, in points; null where a score is.")
    reasons: tuple[Reason, ...] = Field(
        description="Why, the weightiest first. listed, removed, listing_day_edited: by CISA in KEV. epss_rose, epss_fell: its EPSS. "
        "aged: its listing grew older. overtook, overtaken: its own score explains nothing, others moved. "
        "ransomware_reported, ransomware_withdrawn, due_date_edited: CISA edited its entry; these do not change the score."
    )


class Comparison(Answer):
    """Base of what is said of two days."""

    before: date = Field(description="Earlier day.")
    after: date = Field(description="Later day.")


class ChangeCounts(Comparison):
    """How many CVEs of the list changed between two days."""

    entered: int = Field(description="Number of CVEs that are on the later list only.")
    left: int = Field(description="Number of CVEs that are on the earlier list only.")
    moved: int = Field(description="Number of CVEs that are on both lists with another rank.")
    edited: int = Field(description="Number of CVEs on both lists whose ransomware use or due date CISA edited.")
    full_list: str = Field(description="How to get the changes themselves, and their price.")


class Changes(Comparison):
    """What changed between the lists of two days."""

    same_epss_model: bool = Field(description="False if EPSS changed its model between the days: its rises and falls may be due to that.")
    entered: tuple[Change, ...] = Field(description="CVEs that are on the later list only, by their rank there.")
    left: tuple[Change, ...] = Field(description="CVEs that are on the earlier list only, by their rank there.")
    moved: tuple[Change, ...] = Field(description="CVEs that are on both lists with another rank, by the later rank.")
    edited: tuple[Change, ...] = Field(
        description="CVEs on both lists whose ransomware use or due date CISA edited, by the later rank; they may also have moved."
    )
    notices: tuple[str, ...] = Field(description="Notices that the publishers of the feeds require.")


@dataclass(frozen=True)
class ArchivedDay:
    """What is archived of a day: the brief, and the ranks that are kept, by identifier, with KEV as it was."""

    brief: Brief
    ranked: Mapping[str, RankedCve]
    kev: Mapping[str, KevEntry]


@dataclass(frozen=True)
class _State:
    """One CVE on one day."""

    rank: int
    factors: Factors
    listing: KevEntry | None

    @property
    def score(self) -> float:
        return round(self.factors.kev + self.factors.epss + self.factors.recency, DECIMALS)


def counts_of(before: Brief, after: Brief, *, full_list: str) -> ChangeCounts:
    """The numbers of changes, from the briefs alone."""
    old, new = ({entry.cve_id: entry for entry in brief.entries} for brief in (before, after))
    both = old.keys() & new.keys()
    return ChangeCounts(
        ok=True,
        day=after.day,
        before=before.day,
        after=after.day,
        entered=len(new.keys() - old.keys()),
        left=len(old.keys() - new.keys()),
        moved=sum(1 for cve_id in both if old[cve_id].rank != new[cve_id].rank),
        edited=sum(
            1 for cve_id in both if (old[cve_id].ransomware, old[cve_id].kev_due_date) != (new[cve_id].ransomware, new[cve_id].kev_due_date)
        ),
        full_list=full_list,
    )


def changes_of(before: ArchivedDay, after: ArchivedDay) -> Changes:
    """The changes, each with its reasons."""
    old, new = ([entry.cve_id for entry in day.brief.entries] for day in (before, after))
    names = {entry.cve_id: (entry.vendor, entry.product) for day in (before, after) for entry in day.brief.entries}
    states = {cve_id: (_state(before, cve_id), _state(after, cve_id)) for cve_id in names}

    def change(cve_id: str) -> Change:
        return _change(cve_id, names[cve_id], *states[cve_id])

    both = [change(cve_id) for cve_id in new if cve_id in old]
    return Changes(
        ok=True,
        day=after.brief.day,
        before=before.brief.day,
        after=after.brief.day,
        same_epss_model=before.brief.feeds.epss.version == after.brief.feeds.epss.version,
        entered=tuple(change(cve_id) for cve_id in new if cve_id not in old),
        left=tuple(change(cve_id) for cve_id in old if cve_id not in new),
        moved=tuple(one for one in both if one.rank_before != one.rank_after),
        edited=tuple(one for one in both if EDITED.intersection(one.reasons)),
        notices=tuple(dict.fromkeys((*before.brief.notices, *after.brief.notices))),
    )


EDITED = frozenset({"ransomware_reported", "ransomware_withdrawn", "due_date_edited"})


def _state(day: ArchivedDay, cve_id: str) -> _State | None:
    cve = day.ranked.get(cve_id)
    listing = day.kev.get(cve_id)
    if cve is None:
        return None
    points = factors_of(epss=cve.epss, added=listing.date_added if listing else None, day=day.brief.day)
    return _State(cve.rank, Factors(kev=points.kev, epss=points.epss, recency=points.recency), listing)


def _change(cve_id: str, names: tuple[str | None, str | None], old: _State | None, new: _State | None) -> Change:
    points = None
    if old and new:
        steps = {name: getattr(new.factors, name) - getattr(old.factors, name) for name in ("kev", "epss", "recency")}
        points = Factors(**{name: round(step, DECIMALS) + 0.0 for name, step in steps.items()})  # so that no -0.0 is sent
    return Change(
        cve_id=cve_id,
        vendor=names[0],
        product=names[1],
        rank_before=old.rank if old else None,
        rank_after=new.rank if new else None,
        score_before=old.score if old else None,
        score_after=new.score if new else None,
        points=points,
        reasons=tuple(_reasons(old, new, points)),
    )


def _reasons(old: _State | None, new: _State | None, points: Factors | None) -> Sequence[Reason]:
    was = old.listing if old else None
    now = new.listing if new else None
    found: list[tuple[float, Reason]] = []
    if now and not was:
        found.append((100.0, "listed"))
    if was and not now:
        found.append((100.0, "removed"))
    if was and now:
        found += _edits(was, now, points)
    if points and points.epss:
        found.append((abs(points.epss), "epss_rose" if points.epss > 0 else "epss_fell"))
    if was and now and points and points.recency < 0 and was.date_added == now.date_added:
        found.append((-points.recency, "aged"))
    if old and new and old.rank != new.rank:
        up = new.rank < old.rank
        explained = sum((points.kev, points.epss, points.recency)) if points else 0.0
        if (up and explained <= 0) or (not up and explained >= 0):
            found.append((50.0, "overtook" if up else "overtaken"))
    return [reason for _, reason in sorted(found, key=lambda pair: -pair[0])]


def _edits(was: KevEntry, now: KevEntry, points: Factors | None) -> list[tuple[float, Reason]]:
    found: list[tuple[float, Reason]] = []
    if was.date_added != now.date_added:
        found.append((abs(points.recency) if points else 0.0, "listing_day_edited"))
    if was.ransomware != now.ransomware:
        found.append((0.0, "ransomware_reported" if now.ransomware else "ransomware_withdrawn"))
    if was.due_date != now.due_date:
        found.append((0.0, "due_date_edited"))
    return found
