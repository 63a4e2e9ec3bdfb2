"""Accounts for a report: each of its findings stands in exactly one bucket, in the order in which to fix them. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import Field

from buildings.cve.models import WHEN_IF_EXPOSED, ResultPart, left_out
from buildings.cve.ranking.deadlines import When
from buildings.cve.reports.findings import Finding, Report, Said, Unreadable
from buildings.cve.reports.schemes import cves_in
from buildings.cve.reports.verdicts import BatchMiss, BatchVerdict
from buildings.cve.text_tables import csv_of, markdown_table
from campus import Problem

Bucket = Literal[
    "today", "this_week", "later", "state_unknown", "not_ranked", "not_looked_up", "unreadable", "suppressed", "not_affected", "fixed"
]
BUCKETS: Sequence[Bucket] = get_args(Bucket)
"""In the order in which a reader wants to see them: what is to be fixed, what is to be looked at, what is settled."""
OF_STATE: Mapping[Said, Bucket] = {"unknown": "state_unknown", "suppressed": "suppressed", "not_affected": "not_affected", "fixed": "fixed"}
SETTLED: Sequence[Bucket] = ("suppressed", "not_affected", "fixed")
SHOWN_UNREADABLE = 20
MOST_NAMED = 1_000_000
MEANINGS = (
    "today, this_week, later: open, see `when` of a verdict. state_unknown: the report has a word for its state that is not known here. "
    "not_ranked: open, and no list ranks its CVE. not_looked_up: open, and no CVE is known for its identifiers. unreadable: it names "
    "none, or cannot be read. suppressed, not_affected, fixed: what the report says of it."
)

Names = Mapping[str, Sequence[str]]
"""CVEs by the identifiers of other schemes, in upper case, that stand for them."""
Lookup = Callable[[str, str], BatchVerdict | BatchMiss]
"""The verdict on a CVE at a place."""


def left_out_if_unknown(description: str) -> Any:
    """A field that is left out of the JSON where nothing is known: most rows would have many nulls."""
    return left_out(f"{description} Left out if not known.")


class FindingRow(ResultPart):
    """One finding of a report: what the report says of it, and what is known of its CVE."""

    bucket: Bucket = Field(description=MEANINGS)
    when_if_exposed: When | None = left_out(WHEN_IF_EXPOSED)
    cve_id: str | None = left_out_if_unknown("Its CVE; of several the most urgent.")
    id: str | None = left_out_if_unknown("What the tool calls it.")
    other_ids: tuple[str, ...] = left_out("Its other identifiers. Left out if none.", when=())
    package: str | None = left_out_if_unknown("Package, component or product.")
    installed_version: str | None = left_out_if_unknown("Version that the report found.")
    fixed_version: str | None = left_out_if_unknown("Version, or what else the report says, that fixes it.")
    place: str | None = left_out_if_unknown("File, image, host or line in which it was found.")
    tool_severity: str | None = left_out_if_unknown("Severity in the tool's words.")
    state: str | None = left_out_if_unknown("State in the tool's words.")
    said_by: str | None = left_out_if_unknown("Whose word it is that it is not open: a person, a rule, a statement.")
    reason: str | None = left_out_if_unknown("Why it is not ranked, or cannot be read.")
    rank: int | None = left_out_if_unknown("Rank of the CVE, 1 is first.")
    score: float | None = left_out_if_unknown("Priority score, 0 to 100.")
    epss: float | None = left_out_if_unknown("EPSS, 0 to 1.")
    kev: bool | None = left_out_if_unknown("True if the CVE is in KEV.")
    ransomware: bool | None = left_out_if_unknown("True if CISA reports its use in ransomware campaigns. Never false.")


COLUMNS = tuple(FindingRow.model_fields)
OF_VERDICT = ("rank", "score", "epss", "kev", "ransomware")


class Counts(ResultPart):
    """The number of findings in each bucket; together those of the report."""

    today: int = Field(description="Open, to fix today.")
    this_week: int = Field(description="Open, to fix this week.")
    later: int = Field(description="Open, for later.")
    state_unknown: int = Field(description="With a word on their state that is not known here: read them yourself.")
    not_ranked: int = Field(description="Open, and no list ranks their CVE.")
    not_looked_up: int = Field(description="Open, under identifiers of other schemes, for which no CVE is known.")
    unreadable: int = Field(description="Without an identifier, or not to be read.")
    suppressed: int = Field(description="Suppressed, ignored or dismissed, by the report.")
    not_affected: int = Field(description="Not affected, by a statement in the report.")
    fixed: int = Field(description="Fixed or closed, by the report.")


class UnreadablePart(ResultPart):
    """A part of a report that should have been a finding."""

    where: str = Field(description="Where it stands.")
    why: str = Field(description="What is wrong with it.")


class Accounting(ResultPart):
    """What became of all findings of a report."""

    form: str = Field(description="Form as which the report was read, such as Trivy; recognised by its content.")
    findings: int = Field(description="Number of findings, which is the sum of `counts`.")
    counts: Counts = Field(description="Number of findings in each bucket.")
    claimed: int | None = left_out_if_unknown("Number of findings that the report itself says it has.")
    difference: str | None = left_out_if_unknown("A sentence where `claimed` is another number than `findings`.")
    notes: tuple[str, ...] = Field(description="How the report was read, where that matters.")
    unreadable: tuple[UnreadablePart, ...] = left_out("The first 20 parts that cannot be read. Left out if none.", when=())


@dataclass(frozen=True, slots=True)
class Placed:
    """A finding in its bucket, with the most urgent of its CVEs."""

    bucket: Bucket
    finding: Finding | Unreadable
    verdict: BatchVerdict | BatchMiss | None = None

    def row(self) -> FindingRow:
        """What is sent of it."""
        finding, verdict = self.finding, self.verdict
        if isinstance(finding, Unreadable):
            return FindingRow(bucket=self.bucket, place=finding.where, reason=finding.why)
        cve_id = verdict.cve_id if verdict else None
        own, *others = finding.ids
        ranked = verdict if isinstance(verdict, BatchVerdict) else None
        return FindingRow(
            bucket=self.bucket,
            when_if_exposed=None if ranked is None or self.bucket in SETTLED else ranked.when_if_exposed,
            cve_id=cve_id,
            id=own,
            other_ids=tuple(each for each in others if each != cve_id),
            package=finding.package or None,
            installed_version=finding.version or None,
            fixed_version=finding.fixed or None,
            place=finding.place or None,
            tool_severity=finding.severity or None,
            state=finding.state or None,
            said_by=finding.by or None,
            reason=verdict.reason if isinstance(verdict, BatchMiss) else None,
            **({name: getattr(ranked, name) for name in OF_VERDICT} if ranked else {}),
        )


def names_within(report: Report) -> dict[str, tuple[str, ...]]:
    """The CVEs that identifiers of other schemes stand for by the report's own word: those of findings that have both."""
    names: dict[str, dict[str, None]] = {}
    for finding in report.findings:
        if cves := dict.fromkeys(cve_id for each in finding.ids for cve_id in cves_in(each)):
            for each in finding.ids:
                if each not in cves:
                    names.setdefault(each.upper(), {}).update(cves)
    return {name: tuple(cves) for name, cves in names.items()}


def check_names(report: Report, names: Names) -> None:
    """Raises Problem 422 if the identifiers of findings stand for so many CVEs that it would take minutes to look at each."""
    if sum(len(names.get(each.upper(), ())) for finding in report.findings for each in finding.ids) > MOST_NAMED:
        raise Problem(422, "too_many_ids", "identifiers in the report stand for too many CVEs, too many times; send it in parts")


def unnamed(report: Report, names: Names) -> set[str]:
    """The identifiers of findings for which the report itself has no CVE."""
    return {each.upper() for finding in report.findings if not cves_of(finding, names) for each in finding.ids}


def cves_of(finding: Finding, names: Names) -> tuple[str, ...]:
    """The CVEs of a finding: its own, else those that its other identifiers stand for."""
    own = dict.fromkeys(cve_id for each in finding.ids for cve_id in cves_in(each))
    return tuple(own or dict.fromkeys(cve_id for each in finding.ids for cve_id in names.get(each.upper(), ())))


def placed(report: Report, names: Names, lookup: Lookup) -> list[Placed]:
    """All findings of a report in their buckets, the first to fix first."""
    found = [_placed(finding, cves_of(finding, names), lookup) for finding in report.findings]
    found += [Placed("unreadable", each) for each in report.unreadable]
    return sorted(found, key=_urgency)


def _placed(finding: Finding, cve_ids: Iterable[str], lookup: Lookup) -> Placed:
    bucket = OF_STATE.get(finding.said)
    verdicts = [lookup(cve_id, finding.place) for cve_id in cve_ids]
    candidates = [Placed(bucket or (one.when if isinstance(one, BatchVerdict) else "not_ranked"), finding, one) for one in verdicts]
    return min(candidates, key=_urgency, default=Placed(bucket or "not_looked_up", finding))


def _urgency(one: Placed) -> tuple[int, float]:
    rank = one.verdict.rank if isinstance(one.verdict, BatchVerdict) else float("inf")
    return BUCKETS.index(one.bucket), rank


def accounting_of(report: Report, findings: Sequence[Placed]) -> Accounting:
    """What became of the findings of a report, which `placed` has put in their buckets."""
    counts = Counter(one.bucket for one in findings)
    return Accounting(
        form=report.form,
        findings=len(findings),
        counts=Counts(**{bucket: counts[bucket] for bucket in BUCKETS}),
        claimed=report.claimed,
        difference=_difference(report.claimed, len(findings)),
        notes=tuple(report.notes),
        unreadable=tuple(UnreadablePart(where=each.where, why=each.why) for each in report.unreadable[:SHOWN_UNREADABLE]),
    )


def _difference(claimed: int | None, count: int) -> str | None:
    if claimed is None or claimed == count:
        return None
    return f"The report says that it has {claimed:,} findings; {count:,} stand in it."


def csv_of_rows(rows: Iterable[FindingRow]) -> str:
    """A row for each finding."""
    return csv_of(COLUMNS, (_cells(row) for row in rows))


def _cells(row: FindingRow) -> Iterator[object]:
    for name in COLUMNS:
        value = getattr(row, name)
        yield " ".join(value) if isinstance(value, tuple) else value


MARKDOWN_COLUMNS = ("bucket", "CVE", "id", "package", "installed", "fixed", "place", "state", "#rank", "KEV", "#EPSS")


def markdown_of_rows(rows: Iterable[FindingRow]) -> list[str]:
    """The lines of a table with a row for each finding."""
    return markdown_table(
        MARKDOWN_COLUMNS,
        (
            (
                *(row.bucket.replace("_", " "), row.cve_id, None if row.id == row.cve_id else row.id, row.package, row.installed_version),
                *(row.fixed_version, row.place, row.state or row.reason, row.rank, row.kev, row.epss),
            )
            for row in rows
        ),
    )
