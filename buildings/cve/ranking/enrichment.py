"""Severity, patch status, vendor and product of a CVE, each with its source. Pure.

Severity comes from the first of three that rated the CVE: NVD's own analysts, the CVE's numbering authority (CNA),
CISA's additions to CVE records (ADP). Within a source the newest CVSS version counts. A score of 0.0 is taken from
NVD alone, where it means NONE: other sources have used it for "not rated".
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

Severity = Literal["CRITICAL", "HIGH", "MEDIUM", "LOW", "NONE", "UNKNOWN"]
SeveritySource = Literal["nvd", "cna", "cisa-adp"]
PatchStatus = Literal["no_fix_eol", "fix_reference", "vendor_advisory", "unknown"]

NVD = "nvd@nist.gov"
CISA_ADP = "134c704f-9b21-4f2e-91b3-4a467353bcc0"
REJECTED_STATUS = "Rejected"
CHAIN: Sequence[SeveritySource] = ("nvd", "cna", "cisa-adp")

CATALOG_PAGE = "https://www.cisa.gov/known-exploited-vulnerabilities-catalog?search_api_fulltext={cve_id}"


@dataclass(frozen=True, slots=True)
class Metric:
    """One CVSS assessment in an NVD record; `source` is who made it, `version` as in "3.1"."""

    source: str
    primary: bool
    version: str
    score: float
    severity: str
    vector: str | None


@dataclass(frozen=True, slots=True)
class Reference:
    url: str
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Rating:
    severity: Severity
    source: SeveritySource
    score: float
    version: str
    vector: str | None


@dataclass(frozen=True, slots=True)
class Affected:
    """A product that is vulnerable, and which of its versions: `*` for all, else such as `1.2.3` or `>=1.0 <1.2.3`."""

    vendor: str
    product: str
    versions: str


@dataclass(frozen=True, slots=True)
class Ssvc:
    """CISA's decision points for a CVE, as it publishes them: such as active, yes, total."""

    exploitation: str | None
    automatable: str | None
    technical_impact: str | None


@dataclass(frozen=True, slots=True)
class NvdRecord:
    """What is kept of an NVD record; `modified` is the day of its last change.

    `ratings` has one rating of each CVSS version, the newest version first; `affected` has the first products of
    `affected_count`; the links are the first that NVD tagged as Patch, Vendor Advisory and Exploit. `products`, the names of all of
    them, and `description` are stored apart, see nvd/reading.py, and empty in a record that was stored.
    """

    cve_id: str
    status: str
    modified: date
    published: date | None = None
    ratings: tuple[Rating, ...] = ()
    fix_url: str | None = None
    advisory_url: str | None = None
    exploit_url: str | None = None
    cwes: tuple[str, ...] = ()
    affected: tuple[Affected, ...] = ()
    affected_count: int = 0
    ssvc: Ssvc | None = None
    description: str = field(default="", compare=False)
    products: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def rating(self) -> Rating | None:
        """The rating that counts: of the first source of the chain the newest version; None when no source rated the CVE."""
        return min(self.ratings, key=lambda rating: CHAIN.index(rating.source), default=None)

    @property
    def vendor(self) -> str | None:
        return self.affected[0].vendor if self.affected else None

    @property
    def product(self) -> str | None:
        return self.affected[0].product if self.affected else None

    @property
    def is_rejected(self) -> bool:
        return self.status == REJECTED_STATUS


@dataclass(frozen=True, slots=True)
class Patch:
    status: PatchStatus
    url: str | None = None
    said_on: date | None = None


def ratings_of(metrics: Iterable[Metric], *, cna: str) -> tuple[Rating, ...]:
    """Of each CVSS version the rating of the first source of the chain, the newest version first.

    `cna` is the source that the record names as its own.
    """
    best: dict[str, Rating] = {}
    for metric in metrics:
        source = _source_of(metric, cna)
        if source is None or (metric.score == 0 and source != "nvd"):
            continue
        known = best.get(metric.version)
        if known is None or CHAIN.index(source) < CHAIN.index(known.source):
            best[metric.version] = Rating(severity_of(metric), source, metric.score, metric.version, metric.vector)
    return tuple(sorted(best.values(), key=lambda rating: [-int(part) for part in rating.version.split(".")]))


def severity_of(metric: Metric) -> Severity:
    """The label of a CVSS assessment: its own, else the one that its CVSS version assigns to the score."""
    match metric.severity.upper():
        case "CRITICAL" | "HIGH" | "MEDIUM" | "LOW" | "NONE" as word:
            return word
    if metric.score == 0:
        return "NONE"
    if metric.score >= 9 and not metric.version.startswith("2"):
        return "CRITICAL"
    return "HIGH" if metric.score >= 7 else "MEDIUM" if metric.score >= 4 else "LOW"


def _source_of(metric: Metric, cna: str) -> SeveritySource | None:
    if metric.source == NVD:
        return "nvd" if metric.primary else None
    if metric.source == CISA_ADP:
        return "cisa-adp"
    return "cna" if metric.source == cna or metric.primary else None


def tagged(references: Iterable[Reference], tag: str) -> str | None:
    """The first reference with a tag whose link is not known to be broken."""
    return next((reference.url for reference in references if tag in reference.tags and "Broken Link" not in reference.tags), None)


def names_in(cpe: str) -> tuple[str, str, str]:
    """Vendor, product and version of a CPE 2.3 name, blanks for the names' underscores; the version is `*` for all."""
    parts = re.split(r"(?<!\\):", cpe) if "\\" in cpe else cpe.split(":")
    vendor, product, version = (re.sub(r"\\(.)", r"\1", part) if "\\" in part else part for part in (*parts[3:6], "*")[:3])
    return vendor.replace("_", " "), product.replace("_", " "), version


def patch_of(record: NvdRecord | None, *, cve_id: str, end_of_life: date | None) -> Patch:
    """The patch status; `end_of_life` is the day on which KEV listed the product as past its end of life, else None.

    No public feed says "patched": a reference that NVD tagged Patch is the nearest to it.
    """
    if end_of_life is not None:
        return Patch("no_fix_eol", CATALOG_PAGE.format(cve_id=cve_id), end_of_life)
    if record and record.fix_url:
        return Patch("fix_reference", record.fix_url, record.modified)
    if record and record.advisory_url:
        return Patch("vendor_advisory", record.advisory_url, record.modified)
    return Patch("unknown")


ENDED = re.compile(r"\bend[- ]of[- ](life|service|support)\b|^(users should )?(discontinue|disconnect)\b", re.IGNORECASE | re.MULTILINE)
UNSURE = re.compile(r"\bcould\b|\bmay\b|\bif\b(?! still in use)", re.IGNORECASE)
WAY_OUT = re.compile(r"\b(apply|upgrade|supported versions|not considered vulnerable)\b", re.IGNORECASE)


def says_end_of_life(required_action: str) -> bool:
    """Whether KEV's required action says that there will be no fix.

    Most actions end with "or discontinue use of the product if mitigations are unavailable", and some name an old
    version as well as a supported one: only an unconditional statement that offers no alternative counts.
    """
    action = required_action.strip()
    return bool(ENDED.search(action)) and not UNSURE.search(action) and not WAY_OUT.search(action)
