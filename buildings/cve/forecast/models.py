"""The result models of the forecast and of its public record, with a description of every member."""

from collections.abc import Iterator
from datetime import date
from typing import ClassVar

from pydantic import AwareDatetime, ConfigDict, Field
from pydantic.config import JsonDict

from buildings.cve.models import SEVERITY, Answer, Feeds, ResultPart, only_when_true
from buildings.cve.ranking.enrichment import Severity
from buildings.cve.text_tables import csv_of, document, markdown_table, warnings_of

CSV_COLUMNS = ("rank", "cve_id", "score", "epss", "epss_percentile", "epss_week_ago", "age_days", "vendor", "product", "severity")
FACTORS = ("epss", "age", "neighbor", "rise")
RECORD_COLUMNS = (
    *("ranking", "published", "backfilled", "graded", "waiting", "first", "names", "hits"),
    *("precision", "precision_low", "precision_high", "recall", "recall_low", "recall_high", "auc"),
)

FORECAST_EXAMPLE: JsonDict = {
    "rank": 1,
    "cve_id": "CVE-2026-50522",
    "score": 5.127,
    "factors": {"epss": -0.612, "age": 3.101, "neighbor": 1.5, "rise": 1.138},
    "epss": 0.22711,
    "epss_percentile": 0.97402,
    "epss_week_ago": 0.08605,
    "age_days": 9.1,
    "vendor": "Microsoft",
    "product": "SharePoint",
    "severity": "HIGH",
    "precision": {"lists": 30, "names": 30, "listed": 2, "cves_listed": 1, "share": 0.0667},
}


class ForecastTerms(ResultPart):
    """The terms of a forecast's score."""

    epss: float = Field(description="0.5 times the logit of EPSS, ln(p / (1 − p)).")
    age: float = Field(description="−ln(age + 0.02), the age in years: 3.9 on the day of its number, 0 after a year.")
    neighbor: float = Field(description="1.5 if KEV lists the number just before or after it in the same year, else 0.")
    rise: float = Field(
        description="Rise of the logit of EPSS in a week, at most 4; negative if it fell; 0 without an earlier score of the same model."
    )


class Precision(ResultPart):
    """How often past forecasts were right down to one rank; lists count once their 30 days are over."""

    lists: int = Field(description="Number of past lists that are graded.")
    names: int = Field(description="Number of names at this rank or above in those lists.")
    listed: int = Field(description="How many of those names CISA added to KEV within 30 days after the list.")
    cves_listed: int = Field(description="How many different CVEs these are: daily lists name most CVEs many times.")
    share: float | None = Field(description="`listed` divided by `names`, 0 to 1; null while no list is graded.")


class ForecastEntry(ResultPart):
    """One CVE of the forecast."""

    model_config = ConfigDict(json_schema_extra={"examples": [FORECAST_EXAMPLE]})

    rank: int = Field(description="Rank, 1 is the likeliest to be listed.")
    cve_id: str = Field(description="CVE identifier in the form CVE-<year>-<number>.")
    score: float = Field(description="Score of the forecast, the sum of its factors, to three decimals. It is not a probability.")
    factors: ForecastTerms = Field(description="Terms that make up the score.")
    epss: float = Field(description="EPSS: probability that it is exploited in the next 30 days, 0 to 1.")
    epss_percentile: float = Field(description="Share of all scored CVEs with the same or a lower EPSS, 0 to 1.")
    epss_week_ago: float | None = Field(description="EPSS on the day `epss_compared_with`; null if it had no score then.")
    age_days: float = Field(description="Estimated days since its number was assigned, from its place among that year's numbers.")
    vendor: str | None = Field(description="Vendor name, from KEV, else from NVD; null if neither has it.")
    product: str | None = Field(description="Product name, from KEV, else from NVD; null if neither has it.")
    severity: Severity = Field(description=SEVERITY)
    precision: Precision = Field(description="How often past forecasts were right down to this rank.")


class ForecastMethodology(ResultPart):
    """How the forecast is made and graded, the evidence for it, and its limits."""

    question: str = Field(description="Question that the forecast answers.")
    formula: str = Field(description="Formula of the score.")
    terms: tuple[str, ...] = Field(description="Terms of the formula.")
    order: str = Field(description="How CVEs with equal scores are ordered.")
    grading: tuple[str, ...] = Field(description="How past lists are graded.")
    candidates: tuple[str, ...] = Field(description="Rankings that were registered before their results are known, and are graded alike.")
    evidence: tuple[str, ...] = Field(description="Results measured on past data before the service began.")
    limits: tuple[str, ...] = Field(description="What the forecast cannot tell you.")


class ForecastList(Answer):
    """A day's forecast."""

    other_formats: ClassVar = {"text/csv": "as_csv", "text/markdown": "as_markdown"}

    generated_at: AwareDatetime = Field(description="When the list was made (UTC).")
    stale: bool = Field(description="True if EPSS is older than 3 days or KEV older than 14 days.")
    count: int = Field(description="Number of entries of the list.")
    of: int = Field(description="Number of CVEs that were ranked: those that EPSS has scored and KEV does not list.")
    epss_compared_with: date | None = Field(
        description="Day of the earlier EPSS that `rise` compares with, 7 to 10 days before; null if there is none of the same model."
    )
    entries: tuple[ForecastEntry, ...] = Field(description="First CVEs of the list, as many as were asked for, in rank order.")
    methodology: ForecastMethodology | None = Field(
        description="How the forecast is made and graded, with its evidence and limits; null if not asked for."
    )
    feeds: Feeds = Field(description="Version, date and age of each feed.")
    notices: tuple[str, ...] = Field(description="Notices that the publishers of the feeds require.")

    def cut(self, limit: int, *, methodology: bool) -> "ForecastList":
        """The same list with its first entries only, and without the methodology unless it is wanted."""
        return self.model_copy(update={"entries": self.entries[:limit], "methodology": self.methodology if methodology else None})

    def as_csv(self) -> str:
        rows = (
            [*(getattr(entry, name) for name in CSV_COLUMNS), *(getattr(entry.factors, name) for name in FACTORS), entry.precision.share]
            for entry in self.entries
        )
        return csv_of((*CSV_COLUMNS, *(f"factor_{name}" for name in FACTORS), "precision"), rows)

    def as_markdown(self) -> str:
        rows = (
            (
                entry.rank,
                entry.cve_id,
                entry.score,
                entry.epss,
                entry.epss_week_ago,
                entry.age_days,
                entry.severity,
                f"{entry.vendor or ''} {entry.product or ''}",
            )
            for entry in self.entries
        )
        columns = ("#rank", "CVE", "#score", "#EPSS", "#EPSS a week ago", "#age in days", "severity", "product")
        head = [f"# Next in KEV: the forecast of {self.day}", "", *warnings_of(sample=self.sample, stale=self.stale)]
        question = [self.methodology.question, ""] if self.methodology else []
        return document(*head, *question, *markdown_table(columns, rows), notices=self.notices)


class ForecastName(ResultPart):
    """One CVE of the free part of the forecast."""

    rank: int = Field(description="Rank, 1 to 3.")
    cve_id: str = Field(description="CVE identifier in the form CVE-<year>-<number>.")
    vendor: str | None = Field(description="Vendor name, from KEV, else from NVD; null if neither has it.")
    product: str | None = Field(description="Product name, from KEV, else from NVD; null if neither has it.")


class ForecastTeaser(Answer):
    """The first three names of the forecast."""

    question: str = Field(description="Question that the forecast answers.")
    teaser: tuple[ForecastName, ...] = Field(description="First three CVEs of the forecast, in rank order, without scores.")
    full_list: str = Field(description="How to get the full list, and its price.")
    record: str = Field(description="Where past lists are graded, free of charge.")
    stale: bool = only_when_true("True if EPSS is older than 3 days or KEV older than 14 days.")


class Interval(ResultPart):
    """A 95 % interval in which each CVE counts once, however many lists name it."""

    low: float = Field(description="Lower end, 0 to 1.")
    high: float = Field(description="Upper end, 0 to 1.")


class Depth(ResultPart):
    """What one ranking's first names came to."""

    first: int = Field(description="Number of names counted in each list, from the first rank on.")
    names: int = Field(description="Number of names in all graded lists. A CVE that is on 30 of them counts 30 times.")
    hits: int = Field(description="How many of those names came true within 30 days, counted alike.")
    cves: int = Field(description="Number of different CVEs among the names.")
    cves_hit: int = Field(description="Number of different CVEs among the hits.")
    precision: float | None = Field(description="`hits` divided by `names`, 0 to 1; null while no list is graded.")
    precision_interval: Interval | None = Field(description="Wilson's 95 % interval of `precision`, on `cves` observations; or null.")
    recall: float | None = Field(description="`hits` divided by all events of the graded lists, 0 to 1; null while there are none.")
    recall_interval: Interval | None = Field(description="Wilson's 95 % interval of `recall`, on `event_cves` observations; or null.")


class RankingRecord(ResultPart):
    """The results of one ranking."""

    ranking: str = Field(description="Name of the ranking.")
    formula: str = Field(description="Its formula.")
    event: str = Field(description="Event that makes a name come true.")
    published: bool = Field(description="True if its lists are published; false for a baseline or a candidate, which is only graded.")
    since: date | None = Field(description="Day of its first list; null while there is none.")
    first_window_ends: date | None = Field(
        default=None, description="Last of the 30 days of that list, after which it is graded; null while there is none."
    )
    graded: int = Field(description="Number of lists whose 30 days are over.")
    waiting: int = Field(description="Number of lists whose 30 days are not over. They are not part of the other figures.")
    events: int = Field(description="Number of events in the windows of all graded lists; one event can be in the windows of many.")
    event_cves: int = Field(description="Number of different CVEs among the events.")
    depths: tuple[Depth, ...] = Field(description="Results of its first names.")
    auc: float | None = Field(
        description="Probability that a CVE that came true was ranked above one that did not, of all that were ranked; equal ones count "
        "half. Null while there are no events, and for next_in_kev_with_vendor, whose whole order is not kept."
    )
    auc_interval: Interval | None = Field(description="95 % interval of `auc`, by CVE; null with fewer than two.")
    auc_cves: int = Field(description="Number of different CVEs behind `auc`: events that were ranked, thus had an EPSS score.")


class Hit(ResultPart):
    """A CVE that past forecasts named and CISA listed afterwards."""

    cve_id: str = Field(description="CVE identifier in the form CVE-<year>-<number>.")
    list_day: date = Field(description="Day of the first list that named it within the 30 days before its listing.")
    rank: int = Field(description="Its rank in that list.")
    lists: int = Field(description="Number of lists that named it within those days.")
    listed_on: date = Field(description="Day on which CISA added it to KEV.")


class ListResult(ResultPart):
    """What became of the names of one past forecast."""

    list_day: date = Field(description="Day of the list.")
    window_ends: date = Field(description="Last day on which a listing counts.")
    backfilled: bool = Field(description="True if the list was made when its 30 days had begun: it counts apart.")
    names: int = Field(description="Number of names.")
    listed: int = Field(description="How many of them CISA has added to KEV within the 30 days.")
    not_yet: int = Field(description="How many it has not added so far, while the 30 days are not over.")
    missed: int = Field(description="How many it did not add, once they are over.")
    listed_by_epss: int | None = Field(
        default=None, description="How many of as many first names by EPSS alone it has added, to compare; null where that was not graded."
    )


class ForecastRecord(Answer):
    """How every past list fared."""

    other_formats: ClassVar = {"text/csv": "as_csv", "text/markdown": "as_markdown"}

    graded_at: AwareDatetime = Field(description="When the lists were last graded (UTC).")
    kev_version: str = Field(description="Release of KEV that they were graded against.")
    rankings: tuple[RankingRecord, ...] = Field(
        description="Results of the forecast, the brief, and what they are compared with, by lists made before their 30 days began."
    )
    backfilled: tuple[RankingRecord, ...] = Field(
        description="The same by lists that were made later, when what followed could be known. Empty if there are none."
    )
    list_count: int = Field(description="Number of forecasts so far.")
    lists: tuple[ListResult, ...] = Field(
        description="The newest forecasts, 60 at most, also those that are still waiting: hits and misses."
    )
    hit_count: int = Field(description="Number of CVEs that forecasts named in time and CISA listed within 30 days.")
    hits: tuple[Hit, ...] = Field(
        description="The newest of those CVEs, 100 at most, also by lists that are still waiting: `lists` has their other names."
    )
    methodology: ForecastMethodology | None = Field(
        description="How the forecast is made and graded, with its evidence and limits; null if not asked for."
    )
    notices: tuple[str, ...] = Field(description="Notices that the publishers of the feeds require.")

    def cut(self, limit: int, *, methodology: bool) -> "ForecastRecord":
        """The same record with its newest lists and hits only, and without the methodology unless it is wanted."""
        kept = {"lists": self.lists[:limit], "hits": self.hits[:limit], "methodology": self.methodology if methodology else None}
        return self.model_copy(update=kept)

    def as_csv(self) -> str:
        """A row for each depth of each ranking."""
        return csv_of(RECORD_COLUMNS, self._depths())

    def as_markdown(self) -> str:
        """The rankings by depth, then the newest lists and hits."""
        lists = ((one.list_day, one.window_ends, one.names, one.listed, one.not_yet, one.missed, one.listed_by_epss) for one in self.lists)
        hits = ((one.cve_id, one.list_day, one.rank, one.lists, one.listed_on) for one in self.hits)
        return document(
            *("# Record of past forecasts", "", *warnings_of(sample=self.sample, stale=False)),
            *markdown_table([column.replace("_", " ") for column in RECORD_COLUMNS], self._depths()),
            *("", "## Newest lists", ""),
            *markdown_table(("list of", "until", "#names", "#listed", "#not yet", "#missed", "#listed by EPSS alone"), lists),
            *("", "## Came true", ""),
            *markdown_table(("CVE", "first named", "#rank", "#lists", "listed on"), hits),
            notices=self.notices,
        )

    def _depths(self) -> Iterator[tuple[object, ...]]:
        for is_late, rankings in ((False, self.rankings), (True, self.backfilled)):
            for one in rankings:
                for depth in one.depths:
                    shares = (depth.precision, *_ends(depth.precision_interval), depth.recall, *_ends(depth.recall_interval))
                    graded = (one.graded, one.waiting, depth.first, depth.names, depth.hits)
                    yield (one.ranking, one.published, is_late, *graded, *shares, one.auc)


def _ends(interval: Interval | None) -> tuple[float | None, float | None]:
    return (interval.low, interval.high) if interval else (None, None)
