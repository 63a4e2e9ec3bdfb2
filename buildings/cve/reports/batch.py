"""Verdicts on many CVEs at once: those of a list in rank order, the findings of a report in the order in which to fix them. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache, partial
from itertools import chain
from typing import ClassVar
from uuid import NAMESPACE_URL, uuid5

from pydantic import Field
from pydantic_core import to_json

from buildings.cve.arguments import Exposure
from buildings.cve.models import Answer, left_out
from buildings.cve.ranking.deadlines import exposure_at
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.methodology import NOTICES
from buildings.cve.reports.accounting import (
    SETTLED,
    Accounting,
    FindingRow,
    Lookup,
    Placed,
    accounting_of,
    csv_of_rows,
    cves_of,
    markdown_of_rows,
    placed,
)
from buildings.cve.reports.code_scanning import sarif_of
from buildings.cve.reports.findings import Report
from buildings.cve.reports.identifiers import SHOWN_MALFORMED, SHOWN_OTHERS, Listed
from buildings.cve.reports.verdicts import BatchMiss, BatchVerdict, verdict_on
from buildings.cve.text_tables import csv_of, document, markdown_table, plain, warnings_of
from campus import Problem

DEFAULT_LIMIT = 25
MOST_SHOWN = 1_000
MOST_CVES = 20_000

CSV_COLUMNS = (
    *("when", "rank", "cve_id", "score", "kev", "kev_date_added", "kev_due_date", "ransomware", "epss", "epss_percentile"),
    *("severity", "patch_status", "vendor", "product"),
)
DEADLINE_COLUMNS = ("when_if_exposed", "if_exposed", "if_not_exposed", "due")
MARKDOWN_COLUMNS = (
    *("when", "#rank", "CVE", "#score", "KEV", "if exposed", "if not exposed", "due", "ransomware", "#EPSS"),
    *("severity", "patch", "product"),
)


class Verdicts(Answer):
    """The verdicts on many CVEs, in rank order; of a report its findings, the first to fix first."""

    other_formats: ClassVar = {"text/csv": "as_csv", "text/markdown": "as_markdown", "application/sarif+json": "as_sarif"}

    stale: bool = Field(description="True if EPSS is older than 3 days or KEV older than 14 days.")
    of: int = Field(description="Number of ranked CVEs.")
    count: int = Field(description="Number of different CVEs in cve_ids and in the findings of the report that it does not call settled.")
    found: int = Field(description="Number of those that are ranked.")
    overdue: int = Field(description="Number of those whose deadline has passed: of two, that for exposed assets.")
    accounting: Accounting | None = left_out("What became of every finding of a report. Left out without one.")
    findings: tuple[FindingRow, ...] = left_out(
        "Findings of the report, the first to fix first: the first `limit` of them. Left out if there are none.", when=()
    )
    verdicts: tuple[BatchVerdict, ...] = Field(
        description="CVEs that are ranked, the best rank first: those in cve_ids, and those of `findings` that are not settled."
    )
    misses: tuple[BatchMiss, ...] = Field(description="CVEs that are not ranked, and why, in the order of the call.")
    malformed_count: int = Field(description="Number of different texts that look like a CVE identifier and are none.")
    malformed: tuple[str, ...] = Field(description="The first 20 of those texts: nothing was looked up for them.")
    not_looked_up_count: int = Field(description="Number of identifiers of other schemes in cve_ids for which no CVE is known.")
    not_looked_up: tuple[str, ...] = Field(
        description="The first 100 of those identifiers, such as GHSA, RHSA, DSA or PYSEC: call again with the CVEs that they stand for."
    )
    resolved: Mapping[str, tuple[str, ...]] = left_out(
        "Identifiers of other schemes in cve_ids, and the CVEs that they stand for. Left out if there are none.", when={}
    )
    document: str | None = left_out("All findings of a report as text, where Accept asks for another format than JSON. Left out otherwise.")
    notices: tuple[str, ...] = Field(description="Notices that the publishers of the feeds require.")

    def as_csv(self) -> str:
        """Of a report a row for each finding. Of a list a row for each CVE: verdicts, then what has none, with the reason in `missing`."""
        if self.accounting:
            return self.document or csv_of_rows(self.findings)
        ranked = ([*(getattr(one, name) for name in CSV_COLUMNS), "", *one.deadline_cells()] for one in self.verdicts)
        between, after = [""] * (len(CSV_COLUMNS) - 3), [""] * len(DEADLINE_COLUMNS)
        absent = (["", "", cve_id, *between, reason, *after] for cve_id, reason in self._absent())
        return csv_of((*CSV_COLUMNS, "missing", *DEADLINE_COLUMNS), chain(ranked, absent))

    def as_markdown(self) -> str:
        """A summary, then of a report a table of the findings, of a list one of the verdicts and a list of what is not ranked."""
        if self.accounting:
            return self.document or self.report_as_markdown(self.findings)
        lines = [
            f"# CVE verdicts of {self.day}",
            "",
            *warnings_of(sample=self.sample, stale=self.stale),
            f"{self.count} identifier{'s' * (self.count != 1)}: {self.found} of {self.of:,} ranked CVEs, {self.overdue} of them overdue;"
            f" {len(self.misses)} not ranked, {self.malformed_count} malformed, {self.not_looked_up_count} of other schemes.",
            "",
            *markdown_table(MARKDOWN_COLUMNS, map(_row, self.verdicts)),
        ]
        if absent := list(self._absent()):
            lines += ["", "## Without a verdict", "", *(f"- {plain(cve_id)}: {reason.replace('_', ' ')}" for cve_id, reason in absent)]
        return document(*lines, notices=self.notices)

    def as_sarif(self) -> str:
        """Of a report a result for each finding; of a list one for each CVE with a verdict."""
        rows = [FindingRow(bucket=one.when, cve_id=one.cve_id, rank=one.rank, epss=one.epss, kev=one.kev) for one in self.verdicts]
        return self.document or sarif_of(self.findings or rows, day=str(self.day))

    def report_as_markdown(self, rows: Iterable[FindingRow]) -> str:
        """A summary of a report, and a table of its findings."""
        accounting = self.accounting
        assert accounting
        counts = accounting.counts.model_dump()
        in_buckets = ", ".join(f"{count} {bucket.replace('_', ' ')}" for bucket, count in counts.items() if count) or "none"
        return document(
            f"# Findings by the list of {self.day}",
            "",
            *warnings_of(sample=self.sample, stale=self.stale),
            f"{accounting.findings:,} finding{'s' * (accounting.findings != 1)} of {plain(accounting.form)}: {in_buckets}.",
            *(plain(note) for note in (accounting.difference, *accounting.notes) if note),
            "",
            *markdown_of_rows(rows),
            notices=self.notices,
        )

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


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a call asks: a list, a report or both, the CVEs that their other identifiers stand for, and how to answer.

    `about_names` says where the names come from, and how old they are, if any were looked up.
    """

    listed: Listed
    report: Report | None = None
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    about_names: str = ""
    exposed: Exposure = "unknown"
    exposed_places: Sequence[str] = ()
    limit: int = DEFAULT_LIMIT
    media_type: str = "application/json"

    def cve_ids(self) -> Sequence[str]:
        """All CVEs to look up. Raises Problem 422 if there are more than a call takes."""
        found = dict.fromkeys(chain(self.listed.ids, *(self.names.get(each.upper(), ()) for each in self.listed.others)))
        for finding in self.report.findings if self.report else ():
            found |= dict.fromkeys(cves_of(finding, self.names))
        if len(found) > MOST_CVES:
            raise Problem(422, "too_many_ids", f"the report names more than {MOST_CVES:,} different CVEs; send it in parts")
        return tuple(found)

    @property
    def size(self) -> int:
        """How many identifiers and findings there are to look up."""
        return len(self.listed.ids) + (len(self.report.findings) if self.report else 0)


def verdicts_of(edition: Edition, asked: Asked, *, today: date) -> Verdicts:
    """The verdicts on all identifiers, the best rank first; of a report every finding in its bucket."""
    lookup = _lookup(edition, asked, today)
    findings = placed(asked.report, asked.names, lookup) if asked.report else []
    shown = findings[: asked.limit]
    resolved = {each: tuple(asked.names[each.upper()]) for each in asked.listed.others if asked.names.get(each.upper())}
    listed = dict.fromkeys(chain(asked.listed.ids, *resolved.values()))
    everywhere = listed | _unsettled(findings)
    verdicts = [lookup(cve_id, "") for cve_id in everywhere]
    told = listed | _unsettled(shown)
    unresolved = [each for each in asked.listed.others if each not in resolved]
    ranked = [one for one in verdicts if isinstance(one, BatchVerdict)]
    answer = Verdicts(
        ok=True,
        day=edition.day,
        sample=edition.is_sample,
        stale=edition.facts.issues.is_stale(today),
        of=len(edition.ranked),
        count=len(everywhere),
        found=len(ranked),
        overdue=sum((one.deadlines.strictest.days_left or 0) < 0 for one in ranked),
        accounting=accounting_of(asked.report, findings) if asked.report else None,
        findings=tuple(one.row() for one in shown),
        verdicts=tuple(sorted((one for one in ranked if one.cve_id in told), key=lambda one: one.rank)),
        misses=tuple(one for one in verdicts if isinstance(one, BatchMiss) and one.cve_id in told),
        malformed_count=len(asked.listed.malformed),
        malformed=tuple(asked.listed.malformed[:SHOWN_MALFORMED]),
        not_looked_up_count=len(unresolved),
        not_looked_up=tuple(unresolved[:SHOWN_OTHERS]),
        resolved=resolved,
        notices=(*NOTICES, *filter(None, (asked.about_names,))),
    )
    return answer if asked.report is None else _as_document(answer, findings, asked.media_type)


def _unsettled(findings: Iterable[Placed]) -> dict[str, None]:
    """The CVEs of findings that the report does not call fixed, suppressed or not affected."""
    return dict.fromkeys(one.verdict.cve_id for one in findings if one.verdict and one.bucket not in SETTLED)


def _lookup(edition: Edition, asked: Asked, today: date) -> Lookup:
    """Verdicts, each made once."""

    @cache
    def verdict(cve_id: str, exposed: Exposure) -> BatchVerdict | BatchMiss:
        return verdict_on(edition, cve_id, exposed=exposed, today=today)

    def at(cve_id: str, place: str) -> BatchVerdict | BatchMiss:
        return verdict(cve_id, exposure_at(place, asked.exposed, asked.exposed_places) if asked.exposed_places else asked.exposed)

    return at


def _as_document(answer: Verdicts, findings: Sequence[Placed], media_type: str) -> Verdicts:
    """With all findings as text, if that is what the caller asked for: an answer in JSON has only the first."""
    writers: Mapping[str, Callable[[Iterable[FindingRow]], str]] = {
        "text/csv": csv_of_rows,
        "text/markdown": answer.report_as_markdown,
        "application/sarif+json": partial(sarif_of, day=str(answer.day)),
    }
    write = writers.get(media_type)
    return answer.model_copy(update={"document": write(one.row() for one in findings)}) if write else answer


def _row(one: BatchVerdict) -> tuple[object, ...]:
    product = " ".join(name for name in (one.vendor, one.product) if name)
    return (
        one.when.replace("_", " "),
        *(one.rank, one.cve_id, one.score, one.kev_date_added or ("date unknown" if one.kev else None)),
        *one.deadline_cells()[1:],
        *(one.ransomware, one.epss, one.severity, one.patch_status.replace("_", " "), product),
    )
