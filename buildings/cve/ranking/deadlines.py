"""By when a CVE is to be fixed: the table of CISA's directive BOD 26-04, its dates, and what to fix today, this week or later. Pure.

The directive asks four questions: is the CVE in KEV, is the asset exposed to the internet, can exploitation be automated, and is its
technical impact total? CISA answers all but the second: KEV is its catalog, the other two are SSVC points in NVD's records. What it
does not answer, or answers with a word that is not known here, stays open: the deadline is then the range of the rows that remain.

The days are calendar days. They begin when CISA adds the CVE to KEV, or when it is found on the asset, whichever is first (Appendix A):
a date follows for CVEs in KEV only. The directive binds US federal civilian agencies; CISA advises everyone to do the same.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from fnmatch import translate
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from buildings.cve.arguments import Exposure
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.ranking.enrichment import Ssvc

When = Literal["today", "this_week", "later"]
Point = Literal["automatable", "technical_impact"]
Start = Literal["kev_date_added", "kev_first_release", "found"]

SOURCE = (
    "CISA's directive BOD 26-04, table 1, also published by CERT/CC as the SSVC table cisa_bod_26_04 1.0.0. It binds US federal civilian"
    " agencies; CISA advises everyone to do the same."
)
IN_FORCE_SINCE = date(2026, 6, 10)
"""Due dates of earlier KEV entries follow from the directive that this one revoked."""
SOON_ABOVE = 0.1
"""EPSS from which a CVE that nobody is known to exploit is not left for later: one in fourteen CVEs has as much."""
WORDS: dict[Point, dict[str, bool]] = {"automatable": {"yes": True, "no": False}, "technical_impact": {"total": True, "partial": False}}


class Row(NamedTuple):
    """A row of the table; without days the CVE is fixed with the system's next upgrade."""

    number: int
    exposed: bool
    kev: bool
    automatable: bool
    total: bool
    days: int | None
    forensic_triage: bool = False

    @property
    def time(self) -> str:
        return _time(self.days) + " and forensic triage" * self.forensic_triage

    @property
    def answers(self) -> tuple[str, ...]:
        return (
            "exposed" if self.exposed else "not exposed",
            "in KEV" if self.kev else "not in KEV",
            "automatable" if self.automatable else "not automatable",
            f"{'total' if self.total else 'partial'} impact",
        )


ROWS = (
    Row(1, exposed=True, kev=True, automatable=True, total=True, days=3, forensic_triage=True),
    Row(2, exposed=True, kev=True, automatable=True, total=False, days=3),
    Row(3, exposed=True, kev=True, automatable=False, total=True, days=3, forensic_triage=True),
    Row(4, exposed=True, kev=True, automatable=False, total=False, days=14),
    Row(5, exposed=True, kev=False, automatable=True, total=True, days=3),
    Row(6, exposed=True, kev=False, automatable=True, total=False, days=14),
    Row(7, exposed=True, kev=False, automatable=False, total=True, days=14),
    Row(8, exposed=True, kev=False, automatable=False, total=False, days=60),
    Row(9, exposed=False, kev=True, automatable=True, total=True, days=3, forensic_triage=True),
    Row(10, exposed=False, kev=True, automatable=True, total=False, days=14),
    Row(11, exposed=False, kev=True, automatable=False, total=True, days=14),
    Row(12, exposed=False, kev=True, automatable=False, total=False, days=14),
    Row(13, exposed=False, kev=False, automatable=True, total=True, days=60),
    Row(14, exposed=False, kev=False, automatable=True, total=False, days=60),
    Row(15, exposed=False, kev=False, automatable=False, total=True, days=None),
    Row(16, exposed=False, kev=False, automatable=False, total=False, days=None),
)
"""Table 1 of BOD 26-04 (2026-06-10), in the directive's order."""
GROUPS: dict[int | None, When] = {3: "today", 14: "this_week", 60: "later", None: "later"}
ORDER: Sequence[When] = ("today", "this_week", "later")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """By when the directive wants a CVE fixed on an asset that is, or is not, exposed to the internet."""

    rows: Annotated[
        tuple[int, ...], Field(description="Row of the directive's table, 1 to 16; several where CISA left a question open, see `unknown`.")
    ]
    days: Annotated[
        int | None, Field(description="Days until it must be fixed, of several rows the fewest; null: with the system's next upgrade.")
    ]
    days_at_most: Annotated[
        int | None, Field(description="The same of the row with the most days; equal to `days` unless there are several rows.")
    ]
    due: Annotated[
        date | None,
        Field(description="`days` after the listing in KEV. Null if not in KEV: the days then begin when you find it on the asset."),
    ]
    days_left: Annotated[int | None, Field(description="Days from today to `due`; negative: overdue. Null without `due`.")]
    forensic_triage: Annotated[
        bool | None,
        Field(description="True if the asset must also be examined for a compromise: by KEV's word, else by the row. Null: unknown."),
    ]
    row_forensic_triage: Annotated[
        bool | None, Field(exclude_if=lambda value: value is None, description="What the row says, where KEV says something else.")
    ] = None

    @property
    def time(self) -> str:
        if self.days == self.days_at_most:
            return _time(self.days)
        if self.days_at_most is None:
            return f"{_time(self.days)} or {_time(None)}"
        return f"{self.days} to {_time(self.days_at_most)}"

    @property
    def words(self) -> str:
        """Such as `3 days and forensic triage, by 2026-08-24 (row 1: exposed, in KEV, automatable, total impact)`."""
        triage = {True: " and forensic triage", False: "", None: ", perhaps with forensic triage"}[self.forensic_triage]
        if self.row_forensic_triage is not None:
            triage += " (which the row wants, and KEV does not)" if self.row_forensic_triage else " (which KEV wants, and the row does not)"
            triage = triage if self.forensic_triage else f" without forensic triage{triage}"
        due = f", {'by' if self.days == self.days_at_most else 'from'} {self.due}" if self.due else ""
        first, *others = (ROWS[number - 1] for number in self.rows)
        shared = [answer for answer in first.answers if all(answer in row.answers for row in others)]
        numbers = ", ".join(map(str, self.rows))
        return f"{self.time}{triage}{due} (row{'s' if others else ''} {numbers}: {', '.join(shared)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """By when to fix it after CISA's directive BOD 26-04, which binds US federal agencies and is advice to all others."""

    if_exposed: Annotated[
        Deadline | None,
        Field(exclude_if=lambda value: value is None, description="On an asset that the internet reaches. Left out if `exposed` is no."),
    ] = None
    if_not_exposed: Annotated[
        Deadline | None,
        Field(exclude_if=lambda value: value is None, description="On an asset that it does not reach. Left out if `exposed` is yes."),
    ] = None
    unknown: Annotated[
        tuple[Point, ...],
        Field(
            exclude_if=lambda value: not value,
            description="What CISA has not published of the CVE, or in a word unknown here: the deadlines are ranges. Left out if none.",
        ),
    ] = ()
    counts_from: Annotated[date | None, Field(description="Day from which the days count; null: from the day on which you find it.")]
    start: Annotated[
        Start,
        Field(
            description="Source of that day: kev_date_added, CISA's dateAdded; kev_first_release, the first release with it, where "
            "that cannot be read; found: it is not in KEV, so only you know the day. If you found it before the listing, that day counts."
        ),
    ]
    in_words: Annotated[str, Field(exclude_if=lambda value: not value, description="All of this in sentences.")] = ""

    @property
    def strictest(self) -> Deadline:
        """Of both answers the one with fewer days: that for exposed assets."""
        answer = self.if_exposed or self.if_not_exposed
        assert answer, "there is one at least"
        return answer

    @property
    def both(self) -> Deadline | None:
        """The answer that holds whether the asset is exposed or not; None if they differ, or only one was wanted."""
        if not (self.if_exposed and self.if_not_exposed):
            return None
        same = replace(self.if_not_exposed, rows=self.if_exposed.rows)
        return replace(same, rows=(*self.if_exposed.rows, *self.if_not_exposed.rows)) if same == self.if_exposed else None

    @property
    def sentence(self) -> str:
        if both := self.both:
            times = f"exposed to the internet or not, {both.words}"
        elif self.if_exposed and self.if_not_exposed:
            times = f"if exposed to the internet, {self.if_exposed.words}; if not, {self.if_not_exposed.words}"
        else:
            times = self.strictest.words
        open_ones = " and ".join(point.replace("_", " ") for point in self.unknown)
        left_open = f" CISA has not published, or only in a word unknown here: {open_ones}." if open_ones else ""
        start = f"on {self.counts_from}, when KEV listed it, unless you found it before" if self.counts_from else "when you find it"
        return f"CISA's BOD 26-04: {times}. The days begin {start}.{left_open}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Urgency:
    """How long a CVE that was found may wait; `when_if_exposed` where it is less on exposed assets, and exposure is unknown."""

    when: When
    when_if_exposed: When | None
    reason: str
    deadlines: Deadlines

    @property
    def why(self) -> str:
        exposed = f" Fix {self.when_if_exposed} if it is exposed to the internet." if self.when_if_exposed else ""
        return f"Fix {self.when}: {self.reason}.{exposed}".replace("this_week", "this week")


def deadlines_of(listing: KevEntry | None, ssvc: Ssvc | None, *, exposed: Exposure, today: date) -> Deadlines:
    """The directive's deadlines: both, with the asset exposed and not, if that is unknown."""
    automatable = WORDS["automatable"].get(_word(ssvc.automatable if ssvc else None))
    total = WORDS["technical_impact"].get(_word(ssvc.technical_impact if ssvc else None))
    start: Start = "found" if listing is None else "kev_date_added" if listing.date_added else "kev_first_release"
    triage = listing.forensic_triage if listing else None
    return _deadlines(listing.listed_by if listing else None, start, triage, automatable, total, exposed, today)


def urgency_of(listing: KevEntry | None, ssvc: Ssvc | None, *, epss: float | None, exposed: Exposure, today: date) -> Urgency:
    """What to fix when: by the directive's days, by KEV's word on ransomware and its due date, and by EPSS; the most urgent counts.

    Where exposure or CISA's answers are unknown the strictest row counts for what is in KEV, and the laxest for what is not.
    """
    deadlines = deadlines_of(listing, ssvc, exposed=exposed, today=today)
    if listing:
        answer, known = deadlines.strictest, "CISA lists it as exploited and"
        days = answer.days
    else:
        answer, known = deadlines.if_not_exposed or deadlines.strictest, "it is not in KEV, and CISA"
        days = answer.days_at_most
    grounds = (*_grounds(listing, ssvc, epss, today), (GROUPS[days], f"{known} gives it {_if(deadlines, answer)}"))
    when, reason = min(grounds, key=lambda ground: ORDER.index(ground[0]))
    if_exposed = GROUPS[deadlines.strictest.days_at_most]
    is_less = listing is None and ORDER.index(if_exposed) < ORDER.index(when)
    return Urgency(when=when, when_if_exposed=if_exposed if is_less else None, reason=reason, deadlines=deadlines)


@lru_cache(maxsize=4096)
def in_words(deadlines: Deadlines) -> Deadlines:
    return replace(deadlines, in_words=deadlines.sentence)


def exposure_at(place: str, exposed: Exposure, places: Sequence[str]) -> Exposure:
    """Whether an asset is exposed: yes if its host or image matches one of the patterns, such as `web-*`, else as is said of all."""
    return "yes" if places and _one_of(tuple(places)).match(place.lower()) else exposed


@lru_cache(maxsize=16)
def _one_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """All patterns as one: each takes milliseconds to compile, and a report has thousands of places."""
    return re.compile("|".join(translate(pattern.lower()) for pattern in patterns))


def _grounds(listing: KevEntry | None, ssvc: Ssvc | None, epss: float | None, today: date) -> Iterator[tuple[When, str]]:
    """What makes a CVE urgent besides the directive's days, the most urgent first."""
    if listing and listing.ransomware:
        yield "today", "ransomware campaigns use it"
    if listing and listing.due_date and listing.listed_by >= IN_FORCE_SINCE and listing.due_date <= today + timedelta(days=1):
        yield "today", f"CISA lists it as exploited, and its due date in KEV is {listing.due_date}"
    if listing:  # attacks are known: their probability says no more
        return
    if _word(ssvc.exploitation if ssvc else None) == "active":
        yield "this_week", "CISA calls it exploited (SSVC)"
    if epss is not None and epss >= SOON_ABOVE:
        yield "this_week", f"EPSS gives it a chance of {chance_in_words(epss)} to be exploited within 30 days"


def chance_in_words(epss: float) -> str:
    """A probability that is never called sure."""
    return "over 99 %" if epss >= 0.995 else f"{100 * epss:.0f} %"


def _if(deadlines: Deadlines, answer: Deadline) -> str:
    """The time of one of the answers, and if there is another, when it holds."""
    first, second = deadlines.if_exposed, deadlines.if_not_exposed
    if not (first and second) or first.time == second.time:
        return answer.time
    return f"{answer.time} if it is {'' if answer is first else 'not '}exposed"


@lru_cache(maxsize=4096)
def _deadlines(
    listed: date | None, start: Start, by_kev: bool | None, automatable: bool | None, total: bool | None, exposed: Exposure, today: date
) -> Deadlines:
    answers = {
        is_exposed: _deadline(
            [row for row in ROWS if _fits(row, is_exposed, listed is not None, automatable, total)], listed, by_kev, today
        )
        for is_exposed in (True, False)
        if exposed in ("unknown", "yes" if is_exposed else "no")
    }
    points: tuple[tuple[Point, bool | None], ...] = (("automatable", automatable), ("technical_impact", total))
    return Deadlines(
        if_exposed=answers.get(True),
        if_not_exposed=answers.get(False),
        unknown=tuple(point for point, answer in points if answer is None),
        counts_from=listed,
        start=start,
    )


def _fits(row: Row, exposed: bool, kev: bool, automatable: bool | None, total: bool | None) -> bool:
    return (row.exposed, row.kev) == (exposed, kev) and automatable in (None, row.automatable) and total in (None, row.total)


def _deadline(rows: Sequence[Row], listed: date | None, by_kev: bool | None, today: date) -> Deadline:
    ordered = sorted(rows, key=lambda row: (row.days is None, row.days))
    days = ordered[0].days
    due = listed + timedelta(days=days) if listed and days is not None else None
    said = {row.forensic_triage for row in rows}
    by_row = said.pop() if len(said) == 1 else None
    return Deadline(
        rows=tuple(row.number for row in rows),
        days=days,
        days_at_most=ordered[-1].days,
        due=due,
        days_left=(due - today).days if due else None,
        forensic_triage=by_row if by_kev is None else by_kev,
        row_forensic_triage=by_row if by_kev is not None and by_row is not by_kev else None,
    )


def _word(said: str | None) -> str:
    return (said or "").strip().lower()


def _time(days: int | None) -> str:
    return "until the next upgrade" if days is None else f"{days} days"
