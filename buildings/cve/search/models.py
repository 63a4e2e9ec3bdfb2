"""The arguments of the search beside its criteria, and its result."""

from datetime import date
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from buildings.cve.models import KEV_DATE, SEVERITY, Answer, ResultPart
from buildings.cve.ranking.enrichment import Severity
from buildings.cve.ranking.methodology import NOTICES
from buildings.cve.text_tables import csv_of, document, markdown_table, plain, warnings_of

MOST_FOUND = 2_000

Sort = Annotated[
    Literal["rank", "rise", "due"],
    Field(
        description="rank: the most urgent first. rise: the greatest rise of EPSS in a week first, and only"
        " rises. due: by KEV's due date, and only those with one."
    ),
]
Limit = Annotated[int, Field(ge=1, le=MOST_FOUND, description="Most entries to return, 1 to 2,000. All of KEV fits into one call.")]
Offset = Annotated[int, Field(ge=0, le=1_000_000, description="Entries to skip: `next` of the answer before.")]


class FoundCve(ResultPart):
    """A CVE that fits, in short; cve_verdict has the rest."""

    rank: int = Field(description="Rank among all ranked CVEs, 1 is first.")
    cve_id: str = Field(description="CVE identifier.")
    score: float = Field(description="Priority score, 0 to 100.")
    kev: bool = Field(description="True if in KEV.")
    kev_date_added: date | None = Field(description=KEV_DATE)
    kev_due_date: date | None = Field(description="KEV's due date; null if not in KEV, or not known.")
    ransomware: bool | None = Field(description="True if CISA reports its use in ransomware campaigns, else null. Never false.")
    epss: float | None = Field(description="EPSS, 0 to 1; null if not scored yet.")
    epss_rise: float | None = Field(description="Change of EPSS in a week; null if it was not scored then, or by another model.")
    severity: Severity = Field(description=SEVERITY)
    cvss: float | None = Field(description="CVSS base score; null if severity is UNKNOWN.")
    vendor: str | None = Field(description="Vendor, from KEV, else from NVD; null if neither has it.")
    product: str | None = Field(description="Product, from KEV, else from NVD; null if neither has it.")


COLUMNS = tuple(FoundCve.model_fields)


class FoundCves(Answer):
    """The CVEs that fit the criteria of a search."""

    other_formats: ClassVar = {"text/csv": "as_csv", "text/markdown": "as_markdown"}

    stale: bool = Field(description="True if EPSS is older than 3 days or KEV older than 14 days.")
    criteria: tuple[str, ...] = Field(description="What was looked for, a sentence for each criterion.")
    total: int = Field(description="Number of CVEs that fit.")
    count: int = Field(description="Number of entries in this answer.")
    next: int | None = Field(description="Pass it as `offset` for more; null if there are none.")
    notes: tuple[str, ...] = Field(description="Words that no CVE has, with what may be meant, and what the search could not see.")
    entries: tuple[FoundCve, ...] = Field(description="The CVEs, in the order asked for.")

    def as_csv(self) -> str:
        return csv_of(COLUMNS, ([getattr(entry, name) for name in COLUMNS] for entry in self.entries))

    def as_markdown(self) -> str:
        columns = ("#rank", "CVE", "#score", "in KEV since", "KEV due", "ransomware", "#EPSS", "#rise", "severity", "#CVSS", "product")
        rows = (
            (
                *(one.rank, one.cve_id, one.score, one.kev_date_added or ("date unknown" if one.kev else None), one.kev_due_date),
                *(one.ransomware, one.epss, one.epss_rise, one.severity, one.cvss, f"{one.vendor or ''} {one.product or ''}".strip()),
            )
            for one in self.entries
        )
        head = [f"# {self.count:,} of {self.total:,} CVEs on {self.day}", "", *warnings_of(sample=self.sample, stale=self.stale)]
        about = [*(f"- {plain(each)}" for each in (*self.criteria, *self.notes)), ""]
        return document(*head, *about, *markdown_table(columns, rows), notices=NOTICES)
