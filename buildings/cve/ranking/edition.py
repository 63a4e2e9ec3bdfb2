"""The edition of a day: the ranked list and the facts from KEV, EPSS and NVD behind it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from types import MappingProxyType

from buildings.cve.arguments import number_of
from buildings.cve.feeds.acceptance import AHEAD
from buildings.cve.feeds.epss import FEED as EPSS
from buildings.cve.feeds.epss import EpssDay
from buildings.cve.feeds.issue import Issue
from buildings.cve.feeds.kev import FEED as KEV
from buildings.cve.feeds.kev import KevCatalog, KevEntry
from buildings.cve.nvd.records import NvdRecords
from buildings.cve.ranking.formula import RankedSet, ranked

NO_RECORDS = NvdRecords()
NOTHING_HELD: Mapping[str, str] = MappingProxyType({})
STALE_EPSS_DAYS = 3
STALE_KEV_DAYS = 14


@dataclass(frozen=True, slots=True)
class Removal:
    """A CVE that CISA took out of KEV; `noticed_on` is the day of the first list without it. `date_added` is None if it cannot be read."""

    date_added: date | None
    noticed_on: date


@dataclass(frozen=True, kw_only=True)
class Issues:
    """The issues of KEV and EPSS that the edition is made from.

    `kev_held_because` and `epss_held_because` say, in public words, why the newest issue of a feed could not be used, so that the one of
    the list before was. `correction` says what was withdrawn, where the list was made again for that.
    """

    kev: Issue
    epss: Issue
    kev_held_because: str | None = None
    epss_held_because: str | None = None
    correction: str | None = None

    def is_stale(self, day: date) -> bool:
        return are_stale(kev=self.kev.issued.date(), epss=self.epss.issued.date(), day=day)


@dataclass(frozen=True, kw_only=True)
class Facts:
    kev: Mapping[str, KevEntry]
    removed: Mapping[str, Removal]
    issues: Issues


@dataclass(frozen=True, kw_only=True)
class Edition:
    day: date
    made_at: datetime
    ranked: RankedSet
    facts: Facts
    nvd: NvdRecords = NO_RECORDS
    is_sample: bool = False

    @property
    def kev(self) -> KevCatalog:
        issue = self.facts.issues.kev
        return KevCatalog(issue.version, issue.issued, self.facts.kev, issue.unreadable)

    @property
    def epss(self) -> EpssDay:
        issue = self.facts.issues.epss
        return EpssDay(issue.version, issue.issued, self.ranked.scores(), issue.unreadable)


def is_ahead(day: date, *, today: date) -> bool:
    """Whether the list of a day was made by a clock that was ahead: by more than a day, for clocks may differ around midnight."""
    return day > today + AHEAD


def age(issued: date, day: date) -> int:
    return max((day - issued).days, 0)


def are_stale(*, kev: date, epss: date, day: date) -> bool:
    """Whether on `day` EPSS is older than 3 days or KEV older than 14 (its real gaps reach 13)."""
    return age(epss, day) > STALE_EPSS_DAYS or age(kev, day) > STALE_KEV_DAYS


def make_edition(
    *,
    day: date,
    made_at: datetime,
    kev: KevCatalog,
    epss: EpssDay,
    nvd: NvdRecords,
    last: Edition | None = None,
    held_because: Mapping[str, str] = NOTHING_HELD,
    correction: str | None = None,
) -> Edition:
    """The list of `day`; `last` is the edition before it, None for the first; `held_because` has reasons by feed."""
    ranked_set = ranked(epss.scores, listing_days(kev.entries), day=day, left_out=nvd.rejected)
    issues = Issues(
        kev=kev.issue,
        epss=epss.issue,
        kev_held_because=held_because.get(KEV),
        epss_held_because=held_because.get(EPSS),
        correction=correction,
    )
    facts = Facts(kev=kev.entries, removed=_removed(kev.entries, last, day), issues=issues)
    return Edition(day=day, made_at=made_at, ranked=ranked_set, facts=facts, nvd=nvd)


def listing_days(entries: Mapping[str, KevEntry]) -> dict[int, date]:
    """KEV in the form that the ranking takes: CVE number → day of listing, else of the release that first had it."""
    return {number_of(entry.cve_id): entry.listed_by for entry in entries.values()}


def _removed(entries: Mapping[str, KevEntry], last: Edition | None, day: date) -> dict[str, Removal]:
    if last is None or last.day > day:
        return {}
    gone = {cve_id: Removal(entry.date_added, day) for cve_id, entry in last.facts.kev.items() if cve_id not in entries}
    earlier = {cve_id: removal for cve_id, removal in last.facts.removed.items() if cve_id not in entries}
    return earlier | gone
