"""What changed between the lists of two days, and why. Pure: from the two briefs, and what is archived of each day's ranked set.

All scores fall as listings age, which is no news. So the later list is compared with the earlier one as it would be on the later
day if nothing had happened but that (the aged list). A CVE moved if it has another place among those that are on both lists; a CVE
that only makes room for one that came, or closes the gap of one that left, did not.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import ClassVar, Literal

from pydantic import Field

from buildings.cve.arguments import number_of
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.models import Answer, Brief, Entry, Factors, ResultPart
from buildings.cve.ranking.formula import BRIEF_LENGTH, UNSCORED, RankedCve, factors_of
from buildings.cve.ranking.results import DECIMALS
from buildings.cve.text_tables import csv_of, document, markdown_table

CSV_COLUMNS = ("cve_id", "vendor", "product", "rank_before", "rank_after", "score_before", "score_after")
KINDS = ("entered", "left", "moved", "edited")
Reason = Literal[
    "listed",
    "removed",
    "listing_day_edited",
    "epss_rose",
    "epss_fell",
    "aged",
    "displaced",
    "overtook",
    "overtaken",
    "ransomware_reported",
    "ransomware_withdrawn",
    "due_date_edited",
]


class Change(ResultPart):
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
        "aged: nothing happened but that listings grew older. displaced: it would still be on the list without the CVEs in displaced_by. "
        "overtook, overtaken: its own score explains nothing, others fell, left, rose or came. "
        "ransomware_reported, ransomware_withdrawn, due_date_edited: CISA edited its entry; these do not change the score."
    )
    displaced_by: tuple[str, ...] = Field(
        description="If it was displaced: the CVEs that came onto the list, by their rank there, without which it would still be on it."
    )

    def why(self) -> str:
        words = {"displaced": f"displaced by {', '.join(self.displaced_by)}"}
        return ", ".join(words.get(reason, reason.replace("_", " ").replace("epss", "EPSS")) for reason in self.reasons)


class Comparison(Answer):
    """Base of what is said of two days."""

    before: date = Field(description="Earlier day.")
    after: date = Field(description="Later day.")


class ChangeCounts(Comparison):
    """How many CVEs of the list changed between two days."""

    entered: int = Field(description="Number of CVEs that are on the later list only.")
    left: int = Field(description="Number of CVEs that are on the earlier list only.")
    moved: int = Field(description="Number of CVEs on both lists that moved among these, for another reason than age.")
    edited: int = Field(description="Number of CVEs on both lists whose ransomware use or due date CISA edited.")
    full_list: str = Field(description="How to get the changes themselves, and their price.")


class Changes(Comparison):
    """What changed between the lists of two days."""

    other_formats: ClassVar = {"text/csv": "as_csv", "text/markdown": "as_markdown"}

    same_epss_model: bool = Field(description="False if EPSS changed its model between the days: its rises and falls may be due to that.")
    entered_count: int = Field(description="Number of CVEs that entered.")
    left_count: int = Field(description="Number of CVEs that left.")
    moved_count: int = Field(description="Number of CVEs that moved.")
    edited_count: int = Field(description="Number of CVEs that were edited.")
    entered: tuple[Change, ...] = Field(description="CVEs that are on the later list only, by their rank there.")
    left: tuple[Change, ...] = Field(description="CVEs that are on the earlier list only, by their rank there.")
    moved: tuple[Change, ...] = Field(
        description="CVEs on both lists that moved among these, for another reason than age, by the later rank: the fewest that explain "
        "the order. Those that only make room for a CVE that came, or close the gap of one that left, are not among them."
    )
    edited: tuple[Change, ...] = Field(
        description="CVEs on both lists whose ransomware use or due date CISA edited, by the later rank; they may also have moved."
    )
    notices: tuple[str, ...] = Field(description="Notices that the publishers of the feeds require.")

    def cut(self, limit: int) -> "Changes":
        """The same changes, of each kind the first only."""
        kinds = {what: getattr(self, what)[:limit] for what in KINDS}
        return self if all(len(kinds[what]) == getattr(self, f"{what}_count") for what in KINDS) else self.model_copy(update=kinds)

    def as_csv(self) -> str:
        rows = ([what, *(getattr(one, name) for name in CSV_COLUMNS), one.why()] for what, one in self._all())
        return csv_of(("change", *CSV_COLUMNS, "why"), rows)

    def as_markdown(self) -> str:
        rows = (
            (
                *(what, one.cve_id, f"{one.vendor or ''} {one.product or ''}", one.rank_before, one.rank_after),
                *(one.score_before, one.score_after, one.why()),
            )
            for what, one in self._all()
        )
        columns = ("change", "CVE", "product", "#rank before", "#rank after", "#score before", "#score after", "why")
        head = [f"# Changes from {self.before} to {self.after}", ""]
        if not self.same_epss_model:
            head += ["EPSS has another model since then: its rises and falls may be due to that.", ""]
        return document(*head, *markdown_table(columns, rows), notices=self.notices)

    def _all(self) -> Iterator[tuple[str, Change]]:
        for what in KINDS:
            yield from ((what, one) for one in getattr(self, what))


Key = tuple[float, float, int, int]  # By which CVEs are ordered, the highest first: score, EPSS, day of listing, number.


@dataclass(frozen=True)
class ArchivedDay:
    """What is archived of a day: the brief, and the ranks that are kept, by identifier, with KEV as it was."""

    brief: Brief
    ranked: Mapping[str, RankedCve]
    kev: Mapping[str, KevEntry]


@dataclass(frozen=True)
class _State:
    rank: int
    epss: float | None
    factors: Factors
    listing: KevEntry | None

    @property
    def score(self) -> float:
        return round(self.factors.kev + self.factors.epss + self.factors.recency, DECIMALS)


def counts_of(before: Brief, after: Brief, *, full_list: str) -> ChangeCounts:
    old, new = ({entry.cve_id: entry for entry in brief.entries} for brief in (before, after))
    both = old.keys() & new.keys()
    return ChangeCounts(
        ok=True,
        day=after.day,
        before=before.day,
        after=after.day,
        entered=len(new.keys() - old.keys()),
        left=len(old.keys() - new.keys()),
        moved=len(moves_of(before, after)),
        edited=sum(
            1 for cve_id in both if (old[cve_id].ransomware, old[cve_id].kev_due_date) != (new[cve_id].ransomware, new[cve_id].kev_due_date)
        ),
        full_list=full_list,
    )


def moves_of(before: Brief, after: Brief) -> dict[str, int]:
    """The fewest CVEs whose moves explain the order of those on both lists: how many places up, among these, each went.

    Where several choices explain it, those moved whose own facts changed the score the most.
    """
    old = {entry.cve_id: _entry_key(entry, day=after.day) for entry in before.entries}
    both = [entry for entry in after.entries if entry.cve_id in old]
    aged = sorted((entry.cve_id for entry in both), key=old.__getitem__, reverse=True)
    places = [aged.index(entry.cve_id) for entry in both]
    changes = [abs(_entry_key(entry, day=after.day)[0] - old[entry.cve_id][0]) for entry in both]
    stayed = _stayed(places, changes)
    return {entry.cve_id: places[row] - row for row, entry in enumerate(both) if row not in stayed}


def _stayed(places: Sequence[int], changes: Sequence[float]) -> set[int]:
    """The rows of the longest ascending part of `places`; of several the one with the least sum of `changes`."""
    longest: list[tuple[int, float, int]] = []  # of the part that ends in each row: length, sum of changes below 0, row before
    for row, place in enumerate(places):
        parts = [(*longest[earlier][:2], earlier) for earlier in range(row) if places[earlier] < place]
        length, total, earlier = max(parts, default=(0, 0.0, -1))
        longest.append((length + 1, total - changes[row], earlier))
    row = max(range(len(places)), key=longest.__getitem__, default=-1)
    found = set()
    while row >= 0:
        found.add(row)
        row = longest[row][2]
    return found


def _entry_key(entry: Entry, *, day: date) -> Key:
    return _key(entry.cve_id, entry.epss, entry.kev_date_added or entry.kev_first_release, day=day)


def _key(cve_id: str, epss: float | None, added: date | None, *, day: date) -> Key:
    score = factors_of(epss=epss, added=added, day=day).score
    return score, _order_of(epss), added.toordinal() if added else 0, number_of(cve_id)


def _order_of(epss: float | None) -> float:
    return UNSCORED if epss is None else epss


def changes_of(before: ArchivedDay, after: ArchivedDay) -> Changes:
    comparison = _Comparing(before, after)
    old, new = ([entry.cve_id for entry in day.brief.entries] for day in (before, after))
    moves = moves_of(before.brief, after.brief)
    both = [comparison.change(cve_id, moved=moves.get(cve_id)) for cve_id in new if cve_id in old]
    entered = tuple(comparison.entry(cve_id) for cve_id in new if cve_id not in old)
    left = tuple(comparison.departure(cve_id) for cve_id in old if cve_id not in new)
    moved = tuple(one for one in both if one.cve_id in moves)
    edited = tuple(one for one in both if EDITED.intersection(one.reasons))
    return Changes(
        ok=True,
        day=after.brief.day,
        before=before.brief.day,
        after=after.brief.day,
        same_epss_model=before.brief.feeds.epss.version == after.brief.feeds.epss.version,
        entered_count=len(entered),
        left_count=len(left),
        moved_count=len(moved),
        edited_count=len(edited),
        entered=entered,
        left=left,
        moved=moved,
        edited=edited,
        notices=tuple(dict.fromkeys((*before.brief.notices, *after.brief.notices))),
    )


EDITED = frozenset({"ransomware_reported", "ransomware_withdrawn", "due_date_edited"})


class _Comparing:
    """Two days, with the earlier day's set as it would be on the later day if nothing had happened but that it aged."""

    def __init__(self, before: ArchivedDay, after: ArchivedDay) -> None:
        self._before = before
        self._after = after
        self._names = {entry.cve_id: (entry.vendor, entry.product) for day in (before, after) for entry in day.brief.entries}
        self._aged = {
            cve_id: _key(cve_id, cve.epss, listing.listed_by if (listing := before.kev.get(cve_id)) else None, day=after.brief.day)
            for cve_id, cve in before.ranked.items()
        }
        self._aged_list = frozenset(sorted(self._aged, key=self._aged.__getitem__, reverse=True)[:BRIEF_LENGTH])
        old = {entry.cve_id for entry in before.brief.entries}
        self._newcomers = [entry.cve_id for entry in after.brief.entries if entry.cve_id not in old and entry.cve_id not in self._aged_list]

    def change(self, cve_id: str, *, moved: int | None) -> Change:
        """A CVE on both lists; `moved` is how many places it went up among these, None if it did not move."""
        old, new = self._states(cve_id)
        own = _own_reasons(old, new)
        if moved is None or old is None or new is None:
            return self._change(cve_id, own if moved is not None else [reason for reason in own if reason in EDITED])
        rises = self._key_after(cve_id) > self._aged[cve_id]
        if rises != (moved > 0) or not own:
            own = ["overtook" if moved >= 0 else "overtaken", *own]
        return self._change(cve_id, own)

    def entry(self, cve_id: str) -> Change:
        own = _own_reasons(*self._states(cve_id))
        if "listed" in own:
            return self._change(cve_id, own)
        if cve_id in self._aged_list:
            return self._change(cve_id, ["aged", *own])
        return self._change(cve_id, own if self._place_alone(cve_id) <= BRIEF_LENGTH else ["overtook", *own])

    def departure(self, cve_id: str) -> Change:
        _, new = states = self._states(cve_id)
        own = _own_reasons(*states)
        if new is None or "removed" in own:
            return self._change(cve_id, own)
        if cve_id not in self._aged_list:
            return self._change(cve_id, ["aged", *own])
        if self._newcomers and new.rank - len(self._newcomers) <= BRIEF_LENGTH:
            return self._change(cve_id, ["displaced", *own], displaced_by=self._newcomers)
        return self._change(cve_id, own if self._place_alone(cve_id) > BRIEF_LENGTH else ["overtaken", *own])

    def _place_alone(self, cve_id: str) -> int:
        """Its place on the later day if nothing had changed but its own facts."""
        key = self._key_after(cve_id)
        return 1 + sum(1 for other, theirs in self._aged.items() if theirs > key and other != cve_id)

    def _key_after(self, cve_id: str) -> Key:
        cve = self._after.ranked.get(cve_id)
        listing = self._after.kev.get(cve_id)
        return _key(cve_id, cve.epss if cve else None, listing.listed_by if listing else None, day=self._after.brief.day)

    def _states(self, cve_id: str) -> tuple[_State | None, _State | None]:
        return _state(self._before, cve_id), _state(self._after, cve_id)

    def _change(self, cve_id: str, reasons: Sequence[Reason], *, displaced_by: Collection[str] = ()) -> Change:
        old, new = self._states(cve_id)
        vendor, product = self._names[cve_id]
        return Change(
            cve_id=cve_id,
            vendor=vendor,
            product=product,
            rank_before=old.rank if old else None,
            rank_after=new.rank if new else None,
            score_before=old.score if old else None,
            score_after=new.score if new else None,
            points=_points(old, new) if old and new else None,
            reasons=tuple(reasons),
            displaced_by=tuple(displaced_by),
        )


def _state(day: ArchivedDay, cve_id: str) -> _State | None:
    cve = day.ranked.get(cve_id)
    listing = day.kev.get(cve_id)
    if cve is None:
        return None
    points = factors_of(epss=cve.epss, added=listing.listed_by if listing else None, day=day.brief.day)
    return _State(cve.rank, cve.epss, Factors(kev=points.kev, epss=points.epss, recency=points.recency), listing)


def _points(old: _State, new: _State) -> Factors:
    steps = {name: getattr(new.factors, name) - getattr(old.factors, name) for name in ("kev", "epss", "recency")}
    return Factors(**{name: round(step, DECIMALS) + 0.0 for name, step in steps.items()})  # so that no -0.0 is sent


def _own_reasons(old: _State | None, new: _State | None) -> list[Reason]:
    was = old.listing if old else None
    now = new.listing if new else None
    found: list[tuple[float, Reason]] = []
    if now and not was:
        found.append((100.0, "listed"))
    if was and not now:
        found.append((100.0, "removed"))
    if was and now:
        found += _edits(was, now)
    if old and new and old.epss != new.epss:  # a first score of 0 adds no points, and goes before none
        has_risen = _order_of(new.epss) > _order_of(old.epss)
        found.append((abs(new.factors.epss - old.factors.epss), "epss_rose" if has_risen else "epss_fell"))
    return [reason for _, reason in sorted(found, key=lambda pair: -pair[0])]


def _edits(was: KevEntry, now: KevEntry) -> list[tuple[float, Reason]]:
    found: list[tuple[float, Reason]] = []
    if was.date_added != now.date_added and "date_added" not in now.unknown:
        found.append((50.0, "listing_day_edited"))
    if was.ransomware != now.ransomware and "ransomware" not in now.unknown and (now.ransomware or was.ransomware):
        found.append((0.0, "ransomware_reported" if now.ransomware else "ransomware_withdrawn"))
    if was.due_date != now.due_date and "due_date" not in now.unknown:
        found.append((0.0, "due_date_edited"))
    return found
