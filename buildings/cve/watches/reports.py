"""Stored reports: the ids, packages and versions of a report that a watch follows, and what is news of them. No clock, no network.

A stored report is judged again with each list. News of one of its lines is what makes it more urgent: its CVE is in KEV now, is used
for ransomware, is due on another day, has an EPSS over the watch's threshold, has a fix, or belongs to a more urgent group. Each is
told once; what goes back, such as an EPSS that falls, is noted in silence, and told when it comes again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date

from pydantic import TypeAdapter

from buildings.cve.arguments import Exposure, number_of
from buildings.cve.ranking.deadlines import ORDER, When, exposure_at, urgency_of
from buildings.cve.ranking.edition import Edition
from buildings.cve.reports.accounting import Names, cves_of
from buildings.cve.reports.findings import Finding

MOST_LINES = 5_000
LONGEST_TEXT = 200
FOLLOWED = ("open", "unknown")
"""What a report says of the findings that are followed: those that are fixed, suppressed or not affected are settled."""


@dataclass(frozen=True, kw_only=True)
class Following:
    """How a watch follows a report: whether what was scanned is exposed to the internet, and the EPSS from which a CVE is news."""

    exposed: Exposure = "unknown"
    exposed_places: tuple[str, ...] = ()
    least_epss: float


FOLLOWING: TypeAdapter[Following] = TypeAdapter(Following)


@dataclass(frozen=True, slots=True)
class Line:
    """What is stored of a finding: the CVE, else the id that the tool gives it, the package and its version; nothing else of the file.

    `exposed` is what its place in the report said; the place itself is not stored.
    """

    id: str
    package: str
    version: str
    exposed: Exposure


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was last known of a line's CVE; of one that is not ranked nothing is."""

    kev: bool = False
    ransomware: bool = False
    due: date | None = None
    likely: bool = False
    fix: bool = False
    urgency: When | None = None


UNRANKED = Known()


def followed_in(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.said in FOLLOWED]


def lines_of(findings: Iterable[Finding], following: Following, names: Names) -> tuple[Line, ...]:
    """The different lines of findings, in the report's order: of each one for every CVE that it names, or that its names stand for."""
    lines: dict[Line, None] = {}
    for finding in findings:
        exposed = exposure_at(finding.place, following.exposed, following.exposed_places)
        for name in cves_of(finding, names) or finding.ids[:1]:
            lines[Line(name[:LONGEST_TEXT], finding.package[:LONGEST_TEXT], finding.version[:LONGEST_TEXT], exposed)] = None
    return tuple(lines)


def known_of(edition: Edition, cve_id: str, *, exposed: Exposure, least_epss: float, today: date) -> Known:
    """What an edition says of a CVE."""
    cve = edition.ranked.find(cve_id)
    if cve is None:
        return UNRANKED
    listing = edition.facts.kev.get(cve_id)
    outline = edition.nvd.outline(number_of(cve_id))
    urgency = urgency_of(listing, outline.ssvc if outline else None, epss=cve.epss, exposed=exposed, today=today)
    return Known(
        kev=listing is not None,
        ransomware=bool(listing and listing.ransomware),
        due=listing.due_date if listing else None,
        likely=cve.epss is not None and cve.epss >= least_epss,
        fix=bool(outline and outline.patch != "unknown"),
        urgency=urgency.when,
    )


def news_of(before: Known, now: Known, *, least_epss: float) -> tuple[str, ...]:
    """What is news of a line, in words; none if nothing made it more urgent."""
    return tuple(_news(before, now, least_epss))


def _news(before: Known, now: Known, least_epss: float) -> Iterator[str]:
    if now.kev and not before.kev:
        yield "newly in KEV"
    if now.ransomware and not before.ransomware:
        yield "used for ransomware"
    if now.due and now.due != before.due:
        yield f"due {now.due} by KEV"
    if now.likely and not before.likely:
        yield f"EPSS of {least_epss:g} or more"
    if now.fix and not before.fix:
        yield "a fix or advisory"
    if now.urgency and (before.urgency is None or ORDER.index(now.urgency) < ORDER.index(before.urgency)):
        yield f"to fix {now.urgency.replace('_', ' ')}"
