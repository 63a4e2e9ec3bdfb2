"""The edition of a day: the ranked list and the facts from KEV, EPSS and NVD behind it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

from buildings.cve.arguments import number_of
from buildings.cve.feeds.acceptance import AHEAD, Issue
from buildings.cve.feeds.epss import EpssDay
from buildings.cve.feeds.kev import KevCatalog, KevEntry
from buildings.cve.nvd_records import NvdRecords
from buildings.cve.ranking import RankedSet, ranked

NO_RECORDS = NvdRecords()
STALE_EPSS_DAYS = 3
STALE_KEV_DAYS = 14


@dataclass(frozen=True, slots=True)
class Removal:
    """A CVE that CISA took out of KEV; `noticed_on` is the day of the first list without it."""

    date_added: date
    noticed_on: date


@dataclass(frozen=True, kw_only=True)
class Issues:
    """The issues of KEV and EPSS that the edition is made from.

    `kev_held_because` says why the newest KEV could not be used, so that the one of the list before was.
    """

    kev: Issue
    epss: Issue
    kev_held_because: str | None = None

    def is_stale(self, day: date) -> bool:
        """Whether on `day` EPSS is older than 3 days or KEV older than 14 (its real gaps reach 13)."""
        return age(self.epss, day) > STALE_EPSS_DAYS or age(self.kev, day) > STALE_KEV_DAYS


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known about CVEs, by identifier, and about the feeds."""

    kev: Mapping[str, KevEntry]
    removed: Mapping[str, Removal]
    issues: Issues


@dataclass(frozen=True, kw_only=True)
class Edition:
    """The list of one day: every ranked CVE, and the facts behind it."""

    day: date
    made_at: datetime
    ranked: RankedSet
    facts: Facts
    nvd: NvdRecords = NO_RECORDS
    is_sample: bool = False

    @property
    def kev(self) -> KevCatalog:
        """The catalog that it was made from."""
        return KevCatalog(self.facts.issues.kev.version, self.facts.issues.kev.issued, self.facts.kev)

    @property
    def epss(self) -> EpssDay:
        """The scores that it was made from."""
        return EpssDay(self.facts.issues.epss.version, self.facts.issues.epss.issued, self.ranked.scores())


def is_ahead(day: date, *, today: date) -> bool:
    """Whether the list of a day was made by a clock that was ahead: by more than a day, for clocks may differ around midnight."""
    return day > today + AHEAD


def age(issue: Issue, day: date) -> int:
    """Whole days from an issue to `day`, never below 0."""
    return max((day - issue.issued.date()).days, 0)


def make_edition(
    *,
    day: date,
    made_at: datetime,
    kev: KevCatalog,
    epss: EpssDay,
    nvd: NvdRecords,
    last: Edition | None = None,
    kev_held_because: str | None = None,
) -> Edition:
    """The list of `day`; `last` is the edition before it, None for the first."""
    ranked_set = ranked(epss.scores, listing_days(kev.entries), day=day)
    issues = Issues(kev=kev.issue, epss=epss.issue, kev_held_because=kev_held_because)
    facts = Facts(kev=kev.entries, removed=_removed(kev.entries, last, day), issues=issues)
    return Edition(day=day, made_at=made_at, ranked=ranked_set, facts=facts, nvd=nvd)


def listing_days(entries: Mapping[str, KevEntry]) -> dict[int, date]:
    """KEV in the form that the ranking takes: CVE number → day of listing."""
    return {number_of(entry.cve_id): entry.date_added for entry in entries.values()}


def _removed(entries: Mapping[str, KevEntry], last: Edition | None, day: date) -> dict[str, Removal]:
    if last is None or last.day > day:
        return {}
    gone = {cve_id: Removal(entry.date_added, day) for cve_id, entry in last.facts.kev.items() if cve_id not in entries}
    earlier = {cve_id: removal for cve_id, removal in last.facts.removed.items() if cve_id not in entries}
    return earlier | gone
