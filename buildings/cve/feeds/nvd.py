"""Parses NVD's JSON 2.0: a page of its API or a file in the same format, reduced to what the lists need."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from buildings.cve.arguments import canonical
from buildings.cve.enrichment import Metric, NvdRecord, Reference, names_in, rating_of, tagged
from buildings.cve.feeds.acceptance import FeedRefused, Issue, first_fault, glimpse
from buildings.cve.feeds.download import MAX_UNPACKED_BYTES, whole

FEED = "NVD"


@dataclass(frozen=True)
class NvdPage:
    """Some of NVD's records: `count` as sent, from the place `start` on, of `total` in all pages."""

    records: tuple[NvdRecord, ...]
    count: int
    start: int
    total: int
    issue: Issue


class Published(BaseModel):
    """Base of what is read: names as NVD spells them; members that are not needed are ignored."""

    model_config = ConfigDict(alias_generator=to_camel)


class CvssData(Published):
    """The assessment itself."""

    version: str = Field(pattern=r"^[0-9]+\.[0-9]+$")
    base_score: float = Field(ge=0, le=10)
    base_severity: str = ""
    vector_string: str | None = None


class PublishedMetric(Published):
    """An assessment and who made it; version 2.0 has its severity here."""

    source: str
    type: str
    cvss_data: CvssData
    base_severity: str = ""

    def metric(self) -> Metric:
        """The same, flat."""
        cvss = self.cvss_data
        severity = cvss.base_severity or self.base_severity
        return Metric(self.source, self.type == "Primary", cvss.version, cvss.base_score, severity, cvss.vector_string)


class Metrics(BaseModel):
    """All assessments, by CVSS version."""

    v40: list[PublishedMetric] = Field([], alias="cvssMetricV40")
    v31: list[PublishedMetric] = Field([], alias="cvssMetricV31")
    v30: list[PublishedMetric] = Field([], alias="cvssMetricV30")
    v2: list[PublishedMetric] = Field([], alias="cvssMetricV2")

    def all(self) -> list[Metric]:
        """Every assessment."""
        return [one.metric() for one in (*self.v40, *self.v31, *self.v30, *self.v2)]


class PublishedReference(Published):
    """A link with NVD's tags."""

    url: str
    tags: list[str] = []


class CpeMatch(Published):
    """A product, and whether it is the vulnerable one."""

    vulnerable: bool
    criteria: str = Field(pattern=r"^cpe:2\.3:[aho*-]:[^:]+:[^:]+:")


class Node(Published):
    """A group of products."""

    cpe_match: list[CpeMatch] = []


class Configuration(Published):
    """A combination of groups."""

    nodes: list[Node] = []


class PublishedRecord(Published):
    """One CVE."""

    id: str
    source_identifier: str = ""
    vuln_status: str = ""
    last_modified: datetime
    metrics: Metrics
    references: list[PublishedReference] = []
    configurations: list[Configuration] = []

    def record(self) -> NvdRecord | None:
        """The record, reduced to what the lists need; None when its identifier is not valid."""
        if (cve_id := canonical(self.id)) is None:
            return None
        references = [Reference(one.url, one.tags) for one in self.references]
        vendor, product = self._names()
        return NvdRecord(
            cve_id,
            self.vuln_status,
            self.last_modified.date(),
            rating_of(self.metrics.all(), cna=self.source_identifier),
            tagged(references, "Patch"),
            tagged(references, "Vendor Advisory"),
            vendor,
            product,
        )

    def _names(self) -> tuple[str, str] | tuple[None, None]:
        matches = (match for one in self.configurations for node in one.nodes for match in node.cpe_match)
        return next((names_in(match.criteria) for match in matches if match.vulnerable), (None, None))


def _distilled(published: Any) -> NvdRecord | None:
    try:
        return PublishedRecord.model_validate(published).record()
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None


class Item(Published):
    """An element of the page, reduced as soon as it is read: all records at full length would take 50 MB."""

    cve: Annotated[NvdRecord | None, BeforeValidator(_distilled)]


class PublishedPage(Published):
    """A page of the API, or a whole file."""

    start_index: int = Field(ge=0)
    total_results: int = Field(ge=0)
    format: str = Field(pattern="^NVD_CVE$")
    version: str
    timestamp: datetime
    vulnerabilities: list[Item]


def parse_nvd(sent: bytes, max_bytes: int = MAX_UNPACKED_BYTES) -> NvdPage:
    """Read a page, packed or not, whatever the records' status. Raises FeedRefused with what was seen."""
    body = whole(sent, feed=FEED, max_bytes=max_bytes)
    try:
        page = PublishedPage.model_validate_json(body)
    except ValidationError as error:
        raise FeedRefused(FEED, f"not NVD's JSON 2.0 ({first_fault(error)}), but {glimpse(body)}") from None
    distilled = tuple(item.cve for item in page.vulnerabilities if item.cve)
    as_of = page.timestamp if page.timestamp.tzinfo else page.timestamp.replace(tzinfo=UTC)
    issue = Issue(version=page.version, issued=as_of, entries=len(distilled))
    return NvdPage(distilled, len(page.vulnerabilities), page.start_index, page.total_results, issue)
