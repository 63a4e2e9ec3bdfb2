"""NVD's records as they are stored, a line of JSON each, and those of them that a process holds. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal, NamedTuple

import orjson

from buildings.cve.arguments import number_of
from buildings.cve.feeds.issue import Issue
from buildings.cve.ranking.enrichment import CHAIN, REJECTED_STATUS, Affected, NvdRecord, PatchStatus, Rating, Severity, Ssvc

NvdRecordState = Literal["read", "not_read", "absent"]


class Outline(NamedTuple):
    """Of a record what a verdict on many CVEs shows; `patch` is what NVD says of one; of a rejected record it shows nothing else."""

    severity: Severity = "UNKNOWN"
    patch: PatchStatus = "unknown"
    vendor: str | None = None
    product: str | None = None
    is_rejected: bool = False
    ssvc: Ssvc | None = None


@dataclass(frozen=True)
class NvdRecords:
    """How far NVD was read, `entries` of `total`, with the records that were asked for; `is_complete` once all of NVD's were read.

    `lines` has the stored record of each CVE that was asked for, by number; None where NVD has none. With `holds_all` it has every
    record. With `as_of` a record that NVD changed after that day counts as not read. `rejected` and `vendors`, the first that each
    record names, are of all records, and only there while a list is made.
    """

    lines: dict[int, str | None] = field(default_factory=dict)
    version: int = 0
    entries: int = 0
    total: int | None = None
    is_complete: bool = False
    holds_all: bool = False
    issue: Issue | None = None
    as_of: date | None = None
    rejected: frozenset[int] = frozenset()
    vendors: Sequence[tuple[int, str]] = ()

    def find(self, cve_id: str) -> NvdRecord | None:
        """The record of a CVE that was asked for; None when there is none, or it was not read."""
        values = self._values(number_of(cve_id))
        return _record(cve_id, values) if values else None

    def outline(self, number: int) -> Outline | None:
        """The outline of a CVE's record, by number, in half of the time that the record takes; None when `find` returns None."""
        values = self._values(number)
        return _outline(values) if values else None

    def state_of(self, number: int) -> NvdRecordState:
        """What is known of a CVE's record: it was read; it was not read yet; or NVD has none."""
        if self._values(number):
            return "read"
        is_asked = self.holds_all or number in self.lines
        return "absent" if is_asked and self.is_complete and self.as_of is None else "not_read"

    def with_lines(self, lines: Mapping[int, str | None]) -> "NvdRecords":
        return replace(self, lines={**self.lines, **lines})

    def _values(self, number: int) -> list[Any] | None:
        line = self.lines.get(number)
        values: list[Any] | None = orjson.loads(line) if line else None
        return None if values and self.as_of and values[MODIFIED] > self.as_of.toordinal() else values


MODIFIED = 2


def held_whole(records: Iterable[NvdRecord], *, issue: Issue) -> NvdRecords:
    """All of a small NVD."""
    found = list(records)
    return NvdRecords(
        lines={number_of(one.cve_id): line_of(one) for one in found},
        entries=len(found),
        total=len(found),
        is_complete=True,
        holds_all=True,
        issue=issue,
        rejected=frozenset(number_of(one.cve_id) for one in found if one.is_rejected),
        vendors=[(number_of(one.cve_id), one.vendor) for one in found if one.vendor],
    )


def line_of(record: NvdRecord) -> str:
    """A record as it is stored, without its description."""
    ratings = [(rating.version, rating.score, rating.vector, rating.severity, CHAIN.index(rating.source)) for rating in record.ratings]
    affected = [(one.vendor, one.product, one.versions) for one in record.affected]
    ssvc = (record.ssvc.exploitation, record.ssvc.automatable, record.ssvc.technical_impact) if record.ssvc else None
    values = (
        *(affected, record.status, record.modified.toordinal(), record.published.toordinal() if record.published else None, ratings),
        *(record.fix_url, record.advisory_url, record.exploit_url, record.cwes, record.affected_count, ssvc),
    )
    return orjson.dumps(values).decode()


def _record(cve_id: str, values: list[Any]) -> NvdRecord:
    affected, status, modified, published, ratings, fix, advisory, exploit, cwes, count, ssvc = values
    return NvdRecord(
        cve_id,
        status,
        date.fromordinal(modified),
        date.fromordinal(published) if published else None,
        tuple(Rating(severity, CHAIN[source], score, version, vector) for version, score, vector, severity, source in ratings),
        fix,
        advisory,
        exploit,
        tuple(cwes),
        tuple(Affected(*one) for one in affected),
        count,
        Ssvc(*ssvc) if ssvc else None,
    )


def _outline(values: Sequence[Any]) -> Outline:
    affected, status, _, _, ratings, fix, advisory, _, _, _, ssvc = values
    if status == REJECTED_STATUS:
        return Outline(is_rejected=True)
    severity: Severity = min(ratings, key=lambda rating: rating[4])[3] if ratings else "UNKNOWN"
    patch: PatchStatus = "fix_reference" if fix else "vendor_advisory" if advisory else "unknown"
    vendor, product, _ = affected[0] if affected else (None, None, None)
    return Outline(severity, patch, vendor, product, ssvc=Ssvc(*ssvc) if ssvc else None)
