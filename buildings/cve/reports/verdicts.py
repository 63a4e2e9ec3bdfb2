"""The verdict on one of many CVEs: how urgent it is, in few words, or why it is not ranked. Pure."""

from datetime import date

from pydantic import Field

from buildings.cve.arguments import Exposure
from buildings.cve.models import SEVERITY, WHEN, WHEN_IF_EXPOSED, MissReason, Place, ResultPart, left_out
from buildings.cve.numbers import number_of
from buildings.cve.nvd.records import NvdRecordState
from buildings.cve.ranking.deadlines import Deadlines, Urgency, When, urgency_of
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.enrichment import PatchStatus, Severity
from buildings.cve.ranking.formula import factors_of
from buildings.cve.ranking.results import DECIMALS, cause_of_miss


class Wait(ResultPart):
    """How long it may wait."""

    when: When = Field(description=WHEN)
    when_if_exposed: When | None = left_out(WHEN_IF_EXPOSED)
    deadlines: Deadlines = Field(description="By when to fix it after CISA's directive BOD 26-04.")


class BatchVerdict(Place, Wait):
    """The verdict on one of many CVEs."""

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


def verdict_on(edition: Edition, cve_id: str, *, exposed: Exposure, today: date) -> BatchVerdict | BatchMiss:
    """The verdict on a CVE, or why there is none."""
    cve = edition.ranked.find(cve_id)
    if cve is None:
        return BatchMiss(cve_id=cve_id, reason=cause_of_miss(edition, cve_id).reason)
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
