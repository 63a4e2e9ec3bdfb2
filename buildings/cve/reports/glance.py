"""A report at a glance, as everyone gets it: how many findings to fix when, and of the first ones what, where to, and one reason. Pure.

It reads and orders as `cve_verdicts` does, and leaves out what that sells: ranks, scores, their factors, and all that follows the first.
"""

from collections.abc import Mapping

from pydantic import Field

from buildings.cve.models import Answer, left_out
from buildings.cve.ranking.deadlines import GROUPS, SOON_ABOVE, chance_in_words
from buildings.cve.reports.accounting import OF_VERDICT, SETTLED, Accounting, Bucket, FindingRow
from buildings.cve.reports.batch import Verdicts
from buildings.cve.reports.verdicts import BatchVerdict

MOST_ROWS = 50
UNSAID = dict.fromkeys(OF_VERDICT)
OF_BUCKET: Mapping[Bucket, str] = {
    "state_unknown": "the report describes its state with a word that is unknown here",
    "not_looked_up": "no CVE is known for its identifier",
    "not_ranked": "no list ranks its CVE, which says nothing about its risk",
    "unreadable": "it cannot be read",
}
OF_MISS: Mapping[str, str] = {
    "removed_from_kev": "CISA took it off its catalog, and EPSS has no score for it",
    "not_yet_scored": "too new: EPSS has not scored it yet",
    "unreadable": "what EPSS says of it cannot be read today",
    "rejected": "the identifier was withdrawn: it names no vulnerability",
    "unknown": "neither CISA nor EPSS knows this identifier",
}


class Glance(Answer):
    """A report at a glance."""

    stale: bool = Field(description="True if EPSS is older than 3 days or KEV older than 14 days.")
    accounting: Accounting = Field(description="What became of every finding.")
    findings: tuple[FindingRow, ...] = left_out("The first findings, the first to fix first, each with one reason.", when=())


def glance_of(answer: Verdicts) -> Glance:
    assert answer.accounting, "a report was read"
    about = {name: getattr(answer, name) for name in ("ok", "day", "sample", "stale", "accounting")}
    rows = zip(answer.findings, reasons_of(answer), strict=True)
    return Glance(**about, findings=tuple(row.model_copy(update={**UNSAID, "reason": why}) for row, why in rows))


def reasons_of(answer: Verdicts) -> tuple[str, ...]:
    """Of each finding why it stands in its bucket, in a few words."""
    verdicts = {one.cve_id: one for one in answer.verdicts}
    return tuple(_reason(row, verdicts.get(row.cve_id or "")) for row in answer.findings)


def _reason(row: FindingRow, verdict: BatchVerdict | None) -> str:
    if row.bucket in SETTLED:
        return f"the report says so{f': {row.state}' if row.state else ''}"
    if row.bucket in OF_BUCKET or verdict is None:
        return OF_MISS.get(row.reason or "") or row.reason or OF_BUCKET[row.bucket]
    return reason_in_words(verdict)


def reason_in_words(verdict: BatchVerdict) -> str:
    """The one reason for the urgency of a CVE that is ranked."""
    if verdict.kev:
        listed = verdict.kev_date_added
        since = f", in CISA's catalog since {listed.day} {listed:%b %Y}" if listed else ""
        return f"attackers {'and ransomware campaigns ' if verdict.ransomware else ''}use it{since}"
    if verdict.epss is not None and verdict.epss >= SOON_ABOVE:
        return f"{chance_in_words(verdict.epss)} chance of attack within 30 days"
    answer = verdict.deadlines.if_not_exposed or verdict.deadlines.strictest
    if verdict.when == "later":
        return "CISA lists no attacks" + (", as far as is known here" if verdict.deadlines.unknown else "")
    return f"CISA gives it {answer.time}" if GROUPS[answer.days_at_most] == verdict.when else "CISA calls it exploited"
