"""The history of one CVE: its EPSS from the first stored day on, and what CISA did with it in KEV; as JSON, CSV and SVG. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import ClassVar, Literal
from xml.sax.saxutils import escape

from pydantic import ConfigDict, Field

from buildings.cve.archive.epss import Point, changes_of, gaps_between
from buildings.cve.models import Answer, Day, ResultPart
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.formula import factors_of
from buildings.cve.ranking.methodology import NOTICES
from buildings.cve.ranking.results import about
from buildings.cve.text_tables import csv_of, document, markdown_table
from campus import Problem

DAYS_SHOWN = 30
"""The course of EPSS on the pages has this many days."""
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 480, 150, 42, 18, 128
SCORE_BACK, SCORE_AHEAD, SCORE_STEP = 30, 60, 10
"""The course of the score on the page of a CVE, in days."""
EVENTS_IN_WORDS: Mapping[str, str] = {"listed": "listed in KEV", "ransomware_reported": "ransomware", "removed": "removed from KEV"}
KevEventName = Literal["listed", "ransomware_reported", "removed"]


class EpssPoint(ResultPart):
    """The EPSS of a CVE from one day on, until the next point."""

    day: Day = Field(description="Day of EPSS (UTC).")
    epss: float | None = Field(description="Probability that it is exploited in the next 30 days, 0 to 1; null if it was not scored.")
    model: str = Field(description="Version of the EPSS model: scores of different models cannot be compared.")


class EpssGap(ResultPart):
    """Days whose EPSS was not read."""

    model_config = ConfigDict(validate_by_name=True)

    first_day: date = Field(serialization_alias="from", validation_alias="from", description="First missing day.")
    last_day: date = Field(serialization_alias="to", validation_alias="to", description="Last missing day.")


class KevEvent(ResultPart):
    """What CISA did with a CVE in KEV."""

    day: Day = Field(
        description="Day of the listing, or of the first release with it if CISA's date cannot be read; else of the first list with it."
    )
    event: KevEventName = Field(description="listed, ransomware_reported (some time after the listing) or removed.")


class CveHistory(Answer):
    """The history of one CVE."""

    model_config = ConfigDict(validate_by_name=True)
    other_formats: ClassVar = {"text/csv": "as_csv", "text/markdown": "as_markdown", "image/svg+xml": "as_svg"}

    cve_id: str = Field(description="CVE identifier in the form CVE-<year>-<number>.")
    first_day: date = Field(serialization_alias="from", validation_alias="from", description="First day of EPSS in the answer.")
    last_day: date = Field(serialization_alias="to", validation_alias="to", description="Last day of EPSS in the answer.")
    days: int = Field(description="Number of days whose EPSS is known, from `from` to `to`.")
    count: int = Field(description="Number of points of EPSS in the days that were asked for; `epss` has the newest of them.")
    epss: tuple[EpssPoint, ...] = Field(
        description="EPSS on the first day, and each day on which the score or the model is another than before: a score holds until the "
        "next point, except on the days in `gaps`."
    )
    gaps: tuple[EpssGap, ...] = Field(description="Days between `from` and `to` whose EPSS was not read. Nothing is known of them.")
    kev: tuple[KevEvent, ...] = Field(description="What CISA did with it in KEV, at any time, the oldest first; empty if nothing.")
    notices: tuple[str, ...] = Field(description="Notices that the publishers of the feeds require.")

    def as_csv(self) -> str:
        rows = ((day, self.cve_id, point.epss, point.model) for day, point in self._daily() if point)
        return csv_of(("day", "cve_id", "epss", "model"), rows)

    def as_markdown(self) -> str:
        """The points, not each day, then what CISA did."""
        kept = f"{self.days} days from {self.first_day} to {self.last_day}; a score holds until the next line."
        gaps = [f"EPSS was not read from {gap.first_day} to {gap.last_day}." for gap in self.gaps]
        lines = [f"# EPSS of {self.cve_id}", "", kept, *gaps, ""]
        lines += markdown_table(("day", "#EPSS", "model"), ((one.day, one.epss, one.model) for one in self.epss))
        lines += ["", *(f"- {one.day}: {EVENTS_IN_WORDS[one.event]}" for one in self.kev)] if self.kev else []
        return document(*lines, notices=self.notices)

    def as_svg(self) -> str:
        """A line on an axis from 0 to 100 %, interrupted where there is no score and where the model changes; with the days of KEV."""
        highest = max((point.epss or 0.0 for point in self.epss), default=0.0)
        title = f"EPSS of {self.cve_id} from {self.first_day} to {self.last_day}, at most {100 * highest:g} %"
        lines = "".join(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in run)}"/>' for run in self._runs())
        events = [(self._x(one.day), one.event) for one in self.kev if self.first_day <= one.day <= self.last_day]
        marks = "".join(f"M{x:.1f} {TOP}V{BOTTOM}" for x, _ in events)
        axis = "".join(f"M{LEFT} {self._y(share):g}H{WIDTH}" for share in (0, 0.5, 1))
        labels = "".join(
            f'<text x="{x:.1f}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
            for x, y, anchor, text in (
                *((LEFT - 6, self._y(share) + 4, "end", f"{100 * share:g} %") for share in (0, 0.5, 1)),
                *((x, TOP - 6, "end" if x > WIDTH / 2 else "start", EVENTS_IN_WORDS[event]) for x, event in events),
                (LEFT, HEIGHT - 4, "start", str(self.first_day)),
                (WIDTH, HEIGHT - 4, "end", str(self.last_day)),
            )
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">'
            f'<title>{escape(title)}</title><g fill="#7a8490" font-family="sans-serif" font-size="11">{labels}</g>'
            f'<path d="{axis}" stroke="#7a8490" stroke-width="0.5" opacity="0.5"/>'
            f'<path class="kev" d="{marks}" stroke="#d04a3f" stroke-width="1.6" stroke-dasharray="4 3"/>'
            f'<g fill="none" stroke="#3d8bd9" stroke-width="1.6" stroke-linejoin="round" stroke-linecap="round">{lines}</g></svg>'
        )

    def _daily(self) -> Iterator[tuple[date, EpssPoint | None]]:
        """Every day of the window with the point that holds on it; None on days that are not known."""
        points = list(self.epss)
        gaps = list(self.gaps)
        held = None
        for ordinal in range(self.first_day.toordinal(), self.last_day.toordinal() + 1):
            day = date.fromordinal(ordinal)
            while points and points[0].day <= day:
                held = points.pop(0)
            while gaps and gaps[0].last_day < day:
                del gaps[0]
            yield day, None if gaps and gaps[0].first_day <= day else held

    def score_course(self) -> tuple[tuple[date, float | None, float | None], ...]:
        """Of a CVE in KEV the score of each day so far, as it follows from EPSS, and of those ahead if EPSS stays; none of any other."""
        added = max((one.day for one in self.kev if one.event == "listed"), default=None)
        if added is None or self.kev[-1].event == "removed":
            return ()
        known = [(day, factors_of(epss=point.epss, added=added, day=day).score if point else None) for day, point in self._daily()]
        known = [(day, score if day >= added else None) for day, score in known[-SCORE_BACK:]]
        days_ahead = [self.last_day + timedelta(days=ahead) for ahead in range(SCORE_AHEAD + 1)]
        ahead = [(day, factors_of(epss=self.epss[-1].epss, added=added, day=day).score) for day in days_ahead]
        so_far: list[tuple[date, float | None, float | None]] = [(day, score, None) for day, score in known[:-1]]
        return (*so_far, *((day, None if place else score, score) for place, (day, score) in enumerate(ahead)))

    def _x(self, day: date) -> float:
        return LEFT + (WIDTH - LEFT) * (day - self.first_day).days / max((self.last_day - self.first_day).days, 1)

    def _y(self, share: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * share

    def _runs(self) -> list[list[tuple[float, float]]]:
        """The lines to draw: each for days that follow one another with scores of one model."""
        runs: list[list[tuple[float, float]]] = []
        before: EpssPoint | None = None
        for day, point in self._daily():
            if point is None or point.epss is None:
                before = None
                continue
            x, y = self._x(day), self._y(point.epss)
            if before is None or before.model != point.model:
                runs.append([(x, y), (x, y)])
            elif before is not point:
                runs[-1] += [(x, y), (x, y)]
            else:
                runs[-1][-1] = (x, y)
            before = point
        return runs


def history_of(
    edition: Edition, cve_id: str, points: Sequence[Point], flips: Sequence[date], *, first: date | None, last: date | None, limit: int
) -> CveHistory:
    """The history from `first` to `last`, of that the newest `limit` points.

    Raises Problem 422 or 404 if nothing is known of such a window, or nothing of the CVE.
    """
    if first and last and first > last:
        raise Problem(422, "invalid_window", f"from is {first} and to is {last}: from must not be after to")
    shown = [point for point in points if (first is None or point.day >= first) and (last is None or point.day <= last)]
    if not shown:
        wanted = f"{f' from {first} on' if first else ''}{f' until {last}' if last else ''}"
        stored = f"there is EPSS from {points[0].day} to {points[-1].day}, not on every day"
        raise Problem(404, "no_data_for_date", f"no EPSS is stored{wanted}; {stored}")
    events = kev_events(edition, cve_id, flips)
    if not events and all(point.epss is None for point in points):
        since = f"EPSS has not scored {cve_id} since {points[0].day}, the first day that is stored, and KEV has never listed it"
        raise Problem(404, "no_history", f"{since}; check the number, or ask cve_verdict what is known of it")
    changes = changes_of(shown)
    shown = [point for point in shown if point.day >= changes[-limit:][0].day]
    return CveHistory(
        **about(edition),
        cve_id=cve_id,
        first_day=shown[0].day,
        last_day=shown[-1].day,
        days=len(shown),
        count=len(changes),
        epss=tuple(EpssPoint(day=one.day, epss=one.epss, model=one.model) for one in changes[-limit:]),
        gaps=tuple(EpssGap(first_day=begin, last_day=end) for begin, end in gaps_between([one.day for one in shown])),
        kev=events,
        notices=NOTICES,
    )


def kev_events(edition: Edition, cve_id: str, flips: Sequence[date]) -> tuple[KevEvent, ...]:
    """What an edition knows of a CVE in KEV; `flips` are the days on which it was tied to ransomware after its listing."""
    listing = edition.facts.kev.get(cve_id)
    removal = edition.facts.removed.get(cve_id)
    found = [KevEvent(day=day, event="ransomware_reported") for day in flips]
    listed = (listing and listing.listed_by, removal and removal.date_added)
    found += [KevEvent(day=day, event="listed") for day in listed if day]
    found += [KevEvent(day=removal.noticed_on, event="removed")] if removal else []
    return tuple(sorted(found, key=lambda one: (one.day, one.event)))


def course_of(points: Sequence[Point]) -> tuple[float | None, ...]:
    """The EPSS of up to 30 days until the newest, day by day; None on a day that is not known, and under an earlier model."""
    newest = points[-1]
    length = min((newest.day - points[0].day).days + 1, DAYS_SHOWN)
    scores = {point.day: point.epss for point in points if point.model == newest.model}
    return tuple(scores.get(newest.day - timedelta(days=ago)) for ago in reversed(range(length)))
