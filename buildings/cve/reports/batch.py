"""Verdicts on many CVEs at once: the answer in rank order, with its CSV and Markdown. Pure."""

from collections.abc import Iterator
from datetime import date, datetime
from itertools import chain
from typing import ClassVar
from uuid import NAMESPACE_URL, uuid5

from pydantic import Field
from pydantic_core import to_json

from buildings.cve.arguments import Exposure, number_of
from buildings.cve.models import KEV_DATE, KEV_DUE, SEVERITY, WHEN, WHEN_IF_EXPOSED, Answer, MissReason, ResultPart
from buildings.cve.nvd.records import NvdRecordState
from buildings.cve.ranking.deadlines import Deadlines, Urgency, When, urgency_of
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.enrichment import PatchStatus, Severity
from buildings.cve.ranking.formula import RankedCve, factors_of
from buildings.cve.ranking.methodology import NOTICES
from buildings.cve.ranking.results import DECIMALS, cause_of_miss
from buildings.cve.reports.identifiers import SHOWN_MALFORMED, SHOWN_OTHERS, FoundIds
from buildings.cve.text_tables import csv_of, document, markdown_table, plain, warnings_of

CSV_COLUMNS = (
    *("when", "rank", "cve_id", "score", "kev", "kev_date_added", "kev_due_date", "ransomware", "epss", "epss_percentile"),
    *("severity", "patch_status", "vendor", "product"),
)
DEADLINE_COLUMNS = ("when_if_exposed", "if_exposed", "if_not_exposed", "due")
MARKDOWN_COLUMNS = (
    *("when", "#rank", "CVE", "#score", "KEV", "if exposed", "if not exposed", "due", "ransomware", "#EPSS"),
    *("severity", "patch", "product"),
)


class BatchVerdict(ResultPart):
    """The verdict on one of many CVEs."""

    when: When = Field(description=WHEN)
    when_if_exposed: When | None = Field(default=None, exclude_if=lambda when: when is None, description=WHEN_IF_EXPOSED)
    deadlines: Deadlines = Field(description="By when to fix it after CISA's directive BOD 26-04.")
    rank: int = Field(description="Rank, 1 is first. Every CVE in KEV or EPSS has one; no two share one.")
    cve_id: str = Field(description="CVE identifier in the form CVE-<year>-<number>.")
    score: float = Field(description="Priority score, 0 to 100, to three decimals. Above 25: in KEV. Above 50: in KEV and listed recently.")
    kev: bool = Field(description="True if it is in CISA's Known Exploited Vulnerabilities catalog (KEV).")
    kev_date_added: date | None = Field(description=KEV_DATE)
    kev_due_date: date | None = Field(description=KEV_DUE)
    ransomware: bool | None = Field(
        description="True if CISA reports its use in ransomware campaigns; null if CISA does not report it. Never false."
    )
    epss: float | None = Field(description="EPSS: probability that it is exploited in the next 30 days, 0 to 1; null if not scored yet.")
    epss_percentile: float | None = Field(
        description="Share of all scored CVEs with the same or a lower EPSS, 0 to 1; null if not scored yet."
    )
    severity: Severity = Field(description=SEVERITY)
    patch_status: PatchStatus = Field(description="no_fix_eol, fix_reference, vendor_advisory or unknown; cve_verdict has the evidence.")
    vendor: str | None = Field(description="Vendor name, from KEV, else from NVD; null if neither has it.")
    product: str | None = Field(description="Product name, from KEV, else from NVD; null if neither has it.")
    nvd_record: NvdRecordState = Field(description="read, not_read or absent: whether severity, patch status and names say what NVD says.")

    def in_words(self) -> str:
        """When to fix it, and why."""
        epss = "" if self.epss is None or self.kev else f", EPSS {self.epss:.1%}"
        known = f"known to be exploited{' for ransomware' if self.ransomware else ''}" if self.kev else "not in KEV"
        urgency = Urgency(
            when=self.when, when_if_exposed=self.when_if_exposed, reason=f"{known}{epss}, rank {self.rank}", deadlines=self.deadlines
        )
        return f"{urgency.why} {self.deadlines.sentence}"

    def deadline_cells(self) -> tuple[object, ...]:
        """What DEADLINE_COLUMNS name."""
        answers = (self.deadlines.if_exposed, self.deadlines.if_not_exposed)
        return (self.when_if_exposed, *(answer and answer.time for answer in answers), self.deadlines.strictest.due)


class BatchMiss(ResultPart):
    """A CVE that is not ranked."""

    cve_id: str = Field(description="CVE identifier in the form CVE-<year>-<number>.")
    reason: MissReason = Field(description="removed_from_kev, not_yet_scored, unreadable, rejected or unknown; cve_verdict explains it.")


class Verdicts(Answer):
    """The verdicts on many CVEs, in rank order."""

    other_formats: ClassVar = {"text/csv": "as_csv", "text/markdown": "as_markdown"}

    stale: bool = Field(description="True if EPSS is older than 3 days or KEV older than 14 days.")
    of: int = Field(description="Number of ranked CVEs.")
    count: int = Field(description="Number of different CVE identifiers in the call.")
    found: int = Field(description="Number of verdicts.")
    overdue: int = Field(description="Number of verdicts whose deadline has passed: of two, that for exposed assets.")
    verdicts: tuple[BatchVerdict, ...] = Field(description="CVEs that are ranked, the most urgent first.")
    misses: tuple[BatchMiss, ...] = Field(description="CVEs that are not ranked, and why, in the order of the call.")
    malformed_count: int = Field(description="Number of different texts that look like a CVE identifier and are none.")
    malformed: tuple[str, ...] = Field(description="The first 20 of those texts: nothing was looked up for them.")
    not_looked_up_count: int = Field(
        description="Number of different identifiers of other schemes that no CVE in their finding stands for."
    )
    not_looked_up: tuple[str, ...] = Field(
        description="The first 100 of those identifiers, such as GHSA, RHSA, DSA or PYSEC: call again with the CVEs that they stand for."
    )
    left_out_count: int = Field(description="Number of CVEs that a report in JSON mentions only where it names no finding.")
    left_out: tuple[str, ...] = Field(
        description="The first 100 of those CVEs: suppressed, ignored, not affected or fixed by a VEX statement, or only referred to. Send "
        "them in cve_ids for their verdicts."
    )
    notices: tuple[str, ...] = Field(description="Notices that the publishers of the feeds require.")

    def as_csv(self) -> str:
        """A row for each CVE: verdicts, then what has none, with the reason in the column `missing`."""
        ranked = ([*(getattr(one, name) for name in CSV_COLUMNS), "", *one.deadline_cells()] for one in self.verdicts)
        between, after = [""] * (len(CSV_COLUMNS) - 3), [""] * len(DEADLINE_COLUMNS)
        absent = (["", "", cve_id, *between, reason, *after] for cve_id, reason in self._absent())
        return csv_of((*CSV_COLUMNS, "missing", *DEADLINE_COLUMNS), chain(ranked, absent))

    def as_markdown(self) -> str:
        """A summary, a table of the verdicts and a list of what is not ranked."""
        lines = [
            f"# CVE verdicts of {self.day}",
            "",
            *warnings_of(sample=self.sample, stale=self.stale),
            f"{self.count} identifier{'s' * (self.count != 1)}: {self.found} of {self.of:,} ranked CVEs, {self.overdue} of them overdue;"
            f" {len(self.misses)} not ranked, {self.malformed_count} malformed, {self.not_looked_up_count} of other schemes,"
            f" {self.left_out_count} left out.",
            "",
            *markdown_table(MARKDOWN_COLUMNS, map(_row, self.verdicts)),
        ]
        if absent := list(self._absent()):
            lines += ["", "## Without a verdict", "", *(f"- {plain(cve_id)}: {reason.replace('_', ' ')}" for cve_id, reason in absent)]
        return document(*lines, notices=self.notices)

    def as_vex(self, *, author: str, product: str, at: datetime) -> bytes:
        """An OpenVEX document that begins a triage: each CVE that was found is under investigation, with its place in the order.

        `product` is the package URL that the statements are about; without one they are about what the document is attached to.
        """
        about = {"products": [{"@id": product, "identifiers": {"purl": product}}]} if product else {}
        found = [(one.cve_id, one.in_words()) for one in self.verdicts] + [(one.cve_id, "Not ranked.") for one in self.misses]
        statements = [
            {"vulnerability": {"name": cve_id}, **about, "status": "under_investigation", "status_notes": notes} for cve_id, notes in found
        ]
        document = {
            "@context": "https://openvex.dev/ns/v0.2.0",
            "@id": f"urn:uuid:{uuid5(NAMESPACE_URL, f'{author} {at.isoformat()} {to_json(statements).decode()}')}",
            "author": author,
            "timestamp": at.isoformat(),
            "version": 1,
            "statements": statements,
        }
        return to_json(document, indent=2)

    def _absent(self) -> Iterator[tuple[str, str]]:
        yield from ((miss.cve_id, miss.reason) for miss in self.misses)
        yield from ((text, "malformed") for text in self.malformed)
        yield from ((other, "not_looked_up") for other in self.not_looked_up)
        yield from ((cve_id, "left_out") for cve_id in self.left_out)


def verdicts_of(edition: Edition, found: FoundIds, *, exposed: Exposure, today: date) -> Verdicts:
    """The verdicts on all identifiers, the best rank first."""
    ranked, misses = [], []
    for cve_id in found.ids:
        cve = edition.ranked.find(cve_id)
        if cve is None:
            misses.append(BatchMiss(cve_id=cve_id, reason=cause_of_miss(edition, cve_id).reason))
        else:
            ranked.append(_verdict(edition, cve_id, cve, exposed, today))
    ranked.sort(key=lambda one: one.rank)
    return Verdicts(
        ok=True,
        day=edition.day,
        sample=edition.is_sample,
        stale=edition.facts.issues.is_stale(today),
        of=len(edition.ranked),
        count=len(found.ids),
        found=len(ranked),
        overdue=sum(1 for one in ranked if (one.deadlines.strictest.days_left or 0) < 0),
        verdicts=tuple(ranked),
        misses=tuple(misses),
        malformed_count=len(found.malformed),
        malformed=tuple(found.malformed[:SHOWN_MALFORMED]),
        not_looked_up_count=len(found.not_looked_up),
        not_looked_up=tuple(found.not_looked_up[:SHOWN_OTHERS]),
        left_out_count=len(found.left_out),
        left_out=tuple(found.left_out[:SHOWN_OTHERS]),
        notices=NOTICES,
    )


def _verdict(edition: Edition, cve_id: str, cve: RankedCve, exposed: Exposure, today: date) -> BatchVerdict:
    listing = edition.facts.kev.get(cve_id)
    outline = edition.nvd.outline(number_of(cve_id))
    urgency = urgency_of(listing, outline.ssvc if outline else None, epss=cve.epss, exposed=exposed, today=today)
    return BatchVerdict(
        when=urgency.when,
        when_if_exposed=urgency.when_if_exposed,
        deadlines=urgency.deadlines,
        rank=cve.rank,
        cve_id=cve_id,
        score=round(factors_of(epss=cve.epss, added=listing.listed_by if listing else None, day=edition.day).score, DECIMALS),
        kev=listing is not None,
        kev_date_added=listing.date_added if listing else None,
        kev_due_date=listing.due_date if listing else None,
        ransomware=True if listing and listing.ransomware else None,
        epss=cve.epss,
        epss_percentile=cve.percentile,
        severity=outline.severity if outline else "UNKNOWN",
        patch_status="no_fix_eol" if listing and listing.end_of_life else outline.patch if outline else "unknown",
        vendor=(listing and listing.vendor) or (outline and outline.vendor) or None,
        product=(listing and listing.product) or (outline and outline.product) or None,
        nvd_record=edition.nvd.state_of(number_of(cve_id)),
    )


def _row(one: BatchVerdict) -> tuple[object, ...]:
    product = " ".join(name for name in (one.vendor, one.product) if name)
    return (
        *(
            one.when.replace("_", " "),
            one.rank,
            one.cve_id,
            one.score,
            one.kev_date_added or ("date unknown" if one.kev else None),
            *one.deadline_cells()[1:],
            one.ransomware,
            one.epss,
        ),
        *(one.severity, one.patch_status.replace("_", " "), product),
    )
