"""Parses NVD's JSON 2.0: a page of its API or a file in the same format, reduced to what is kept of each record."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic.alias_generators import to_camel

from buildings.cve.arguments import canonical
from buildings.cve.feeds.download import MAX_UNPACKED_BYTES, whole
from buildings.cve.feeds.errors import FeedRefused, first_fault, glimpse
from buildings.cve.feeds.issue import Issue
from buildings.cve.feeds.vocabulary import Words, form_of
from buildings.cve.ranking.enrichment import CISA_ADP, Affected, Metric, NvdRecord, Reference, Ssvc, names_in, ratings_of, tagged

FEED = "NVD"

MAX_AFFECTED, MAX_PRODUCTS = 20, 2_000
MAX_CWES = 10
MAX_TEXT = 400  # Longer links, vectors and names are left out or cut: a record takes some hundred bytes.
MAX_DESCRIPTION = 800  # Longer descriptions are cut: they go on with versions, or with the trace of a kernel.

CWE = re.compile(r"CWE-[0-9]{1,5}")
_RECORD_MEMBERS = """
    id sourceIdentifier published lastModified vulnStatus cveTags descriptions metrics weaknesses configurations references affected
    vendorComments evaluatorComment evaluatorImpact evaluatorSolution cisaExploitAdd cisaActionDue cisaRequiredAction cisaVulnerabilityName
"""
RECORD_MEMBERS = frozenset(_RECORD_MEMBERS.split())
_STATUSES = """
    Received; Awaiting Analysis; Undergoing Analysis; Awaiting Enrichment; Undergoing Enrichment; Analyzed; Modified; Enriched; Deferred;
    Rejected
"""
STATUSES = {word.lower(): word for word in map(str.strip, _STATUSES.split(";"))} | {"": ""}
SEVERITIES = frozenset({"CRITICAL", "HIGH", "MEDIUM", "LOW", "NONE", ""})
RATERS = frozenset({"Primary", "Secondary"})
_TAGS = """
    Broken Link; Customer Entitlement; Exploit; Issue Tracking; Mailing List; Mitigation; Not Applicable; Patch; Permissions Required;
    Press/Media Coverage; Product; Release Notes; Technical Description; Third Party Advisory; Tool Signature; URL Repurposed;
    US Government Resource; VDB Entry; Vendor Advisory
"""
TAGS = {word.lower(): word for word in map(str.strip, _TAGS.split(";"))}
"""Statuses and tags by their lower case: they are read in whatever case NVD writes them."""
STATUS_WORDS, TAG_WORDS = frozenset(STATUSES.values()), frozenset(TAGS.values())
SSVC = {
    "exploitation": frozenset({"none", "poc", "active"}),
    "automatable": frozenset({"yes", "no"}),
    "technicalimpact": frozenset({"partial", "total"}),
}
"""CISA's decision points. Its names and values may be written in either case, names also with blanks."""
NOT_DEFINED = re.compile(r"/[A-Z]{1,3}:X(?=/|$)")
"""A metric of a CVSS vector that is not defined, which means the same as leaving it out."""


@dataclass(frozen=True)
class NvdPage:
    """Some of NVD's records: `count` as sent, from the place `start` on, of `total` in all pages."""

    records: tuple[NvdRecord, ...]
    count: int
    start: int
    total: int
    issue: Issue
    words: Words = field(default_factory=Words, compare=False)


class Published(BaseModel):
    """Base of what is read: names as NVD spells them; members that are not needed are ignored."""

    model_config = ConfigDict(alias_generator=to_camel)


class CvssData(Published):
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
        cvss = self.cvss_data
        severity = cvss.base_severity or self.base_severity
        vector = NOT_DEFINED.sub("", cvss.vector_string)[:MAX_TEXT] if cvss.vector_string else None
        return Metric(self.source, self.type == "Primary", cvss.version, cvss.base_score, severity, vector)


class Assessments(BaseModel, extra="allow"):
    """All assessments, by CVSS version, and CISA's decision points; those of later versions are among the members that are not known."""

    v40: list[PublishedMetric] = Field([], alias="cvssMetricV40")
    v31: list[PublishedMetric] = Field([], alias="cvssMetricV31")
    v30: list[PublishedMetric] = Field([], alias="cvssMetricV30")
    v2: list[PublishedMetric] = Field([], alias="cvssMetricV2")
    ssvc: list[Any] = Field([], alias="ssvcV203")

    def all(self) -> list[Metric]:
        return [one.metric() for one in (*self.v40, *self.v31, *self.v30, *self.v2, *self._later())]

    def _later(self) -> Iterator[PublishedMetric]:
        for name, value in (self.model_extra or {}).items():
            for one in value if name.startswith("cvss") and isinstance(value, list) else ():
                with suppress(ValidationError):
                    yield PublishedMetric.model_validate(one)

    def decisions(self) -> list[Any]:
        extra = (self.model_extra or {}).items()
        return [*self.ssvc, *(one for name, value in extra if name.startswith("ssvc") and isinstance(value, list) for one in value)]


class PublishedReference(Published):
    url: str
    tags: list[str] = []


class CpeMatch(Published):
    vulnerable: bool
    criteria: str = Field(pattern=r"^cpe:2\.3:[aho*-]:[^:]+:[^:]+:")
    version_start_including: str = ""
    version_start_excluding: str = ""
    version_end_including: str = ""
    version_end_excluding: str = ""

    def affected(self) -> Affected:
        vendor, product, version = names_in(self.criteria)
        bounds = (
            (">=", self.version_start_including),
            (">", self.version_start_excluding),
            ("<=", self.version_end_including),
            ("<", self.version_end_excluding),
        )
        versions = " ".join(f"{sign}{bound}" for sign, bound in bounds if bound) or version
        return Affected(vendor[:MAX_TEXT], product[:MAX_TEXT], versions[:MAX_TEXT])


class ProductGroup(Published):
    cpe_match: list[CpeMatch] = []


class Configuration(Published):
    nodes: list[ProductGroup] = []


class LanguageText(Published):
    lang: str = ""
    value: str


class Weakness(Published):
    description: list[LanguageText] = []


class PublishedRecord(Published):
    id: str
    source_identifier: str = ""
    vuln_status: str = ""
    published: datetime | None = None
    last_modified: datetime
    descriptions: list[LanguageText] = []
    metrics: Assessments
    references: list[PublishedReference] = []
    configurations: list[Configuration] = []
    weaknesses: list[Weakness] = []

    def record(self, words: Words) -> NvdRecord | None:
        """The record, reduced to what is kept; None when its identifier is not valid. What it says in unknown words is added to `words`."""
        if (cve_id := canonical(self.id)) is None:
            words.add("form of id", form_of(self.id), taken_as="left out")
            return None
        metrics = self.metrics.all()
        self._watch(words, metrics)
        links = [
            Reference(reference.url, [TAGS.get(tag.lower(), tag) for tag in reference.tags])
            for reference in self.references
            if len(reference.url) <= MAX_TEXT
        ]
        affected = _each_product_first(dict.fromkeys(self._affected()))
        return NvdRecord(
            cve_id,
            STATUSES.get(self.vuln_status.strip().lower(), self.vuln_status)[:MAX_TEXT],
            self.last_modified.date(),
            published=self.published.date() if self.published else None,
            ratings=ratings_of(metrics, cna=self.source_identifier),
            fix_url=tagged(links, "Patch"),
            advisory_url=tagged(links, "Vendor Advisory"),
            exploit_url=tagged(links, "Exploit"),
            cwes=self._cwes(),
            affected=affected[:MAX_AFFECTED],
            affected_count=len(affected),
            ssvc=_ssvc(self.metrics.decisions(), words),
            description=self._description(),
            products=tuple(dict.fromkeys((one.vendor, one.product) for one in affected))[:MAX_PRODUCTS],
        )

    def _watch(self, words: Words, metrics: Iterable[Metric]) -> None:
        words.values((self.vuln_status,), STATUS_WORDS, of="vulnStatus", taken_as="shown as it is, and not as rejected")
        for name in self.metrics.model_extra or ():
            used = name.startswith(("cvss", "ssvc"))
            words.add("member of metrics", name, taken_as="read like the others where it has their form" if used else "ignored")
        for metric in metrics:
            words.values((metric.severity.upper(),), SEVERITIES, of="baseSeverity", taken_as="the severity follows from the score")
        for one in (*self.metrics.v40, *self.metrics.v31, *self.metrics.v30, *self.metrics.v2):
            words.values((one.type,), RATERS, of="type", taken_as="Secondary")
        for reference in self.references:
            words.values(reference.tags, TAG_WORDS, of="tags", taken_as="ignored")

    def _description(self) -> str:
        text = next((" ".join(one.value.replace("\0", "").split()) for one in self.descriptions if one.lang == "en"), "")
        return text if len(text) <= MAX_DESCRIPTION else f"{text[:MAX_DESCRIPTION].rpartition(' ')[0]} …"

    def _affected(self) -> Iterator[Affected]:
        matches = (match for configuration in self.configurations for node in configuration.nodes for match in node.cpe_match)
        return (match.affected() for match in matches if match.vulnerable)

    def _cwes(self) -> tuple[str, ...]:
        names = (text.value for weakness in self.weaknesses for text in weakness.description if CWE.fullmatch(text.value))
        return tuple(dict.fromkeys(names))[:MAX_CWES]


def _each_product_first(affected: Iterable[Affected]) -> tuple[Affected, ...]:
    """First one range of versions of each product, then the others: only some of all are kept, and watches look for products."""
    seen: Counter[tuple[str, str]] = Counter()
    places = []
    for place, one in enumerate(affected):
        product = one.vendor, one.product
        places.append((seen[product], place, one))
        seen[product] += 1
    return tuple(one for *_, one in sorted(places, key=lambda item: item[:2]))


def _ssvc(published: list[Any], words: Words) -> Ssvc | None:
    """CISA's decision points; None where they are missing or in another form, which is no reason to refuse a page."""
    for one in published:
        source, data = (one.get("source"), one.get("ssvcData")) if isinstance(one, dict) else (None, None)
        if source != CISA_ADP:
            words.add("source of SSVC", source, taken_as="ignored")
            continue
        options = data.get("options") if isinstance(data, dict) else None
        if isinstance(options, list):
            pairs = [pair for each in options if isinstance(each, dict) for pair in each.items()]
            said = {_plain(name): value[:40].lower() for name, value in pairs if isinstance(value, str)}
            for name, value in said.items():
                if name in SSVC:
                    words.values((value,), SSVC[name], of=f"SSVC's {name}", taken_as="shown as it is, and decides nothing")
                else:
                    words.add("decision point of SSVC", name, taken_as="ignored")
            points = Ssvc(said.get("exploitation"), said.get("automatable"), said.get("technicalimpact"))
            return points if points != Ssvc(None, None, None) else None
        words.add("form of a record's", "SSVC", taken_as="as if the record lacked it")
    return None


def _plain(name: str) -> str:
    return name.lower().replace(" ", "").replace("_", "")


def _distilled(published: Any, info: ValidationInfo[Words]) -> NvdRecord | None:
    try:
        record = PublishedRecord.model_validate(published)
    except ValidationError as error:
        record = _read_without_nulls(published, error)
    info.context.members(published, RECORD_MEMBERS, of="records")
    return record.record(info.context)


def _read_without_nulls(published: Any, error: ValidationError) -> PublishedRecord:
    """The record, read as if it lacked the members that are null."""
    try:
        return PublishedRecord.model_validate(_without_nulls(published))
    except ValidationError:
        raise ValueError(first_fault(error)) from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    return [_without_nulls(one) for one in value if one is not None] if isinstance(value, list) else value


class Item(Published):
    """An element of the page, reduced as soon as it is read: all records at full length would take 50 MB."""

    cve: Annotated[NvdRecord | None, BeforeValidator(_distilled)]


class PublishedPage(Published, extra="allow"):
    results_per_page: Any = None
    start_index: int = Field(ge=0)
    total_results: int = Field(ge=0)
    format: str = Field(pattern="^NVD_CVE$")
    version: str
    timestamp: datetime
    vulnerabilities: list[Item]


def parse_nvd(sent: bytes, max_bytes: int = MAX_UNPACKED_BYTES) -> NvdPage:
    """Read a page, packed or not, whatever the records' status. Raises FeedRefused with what was seen."""
    body = whole(sent, feed=FEED, max_bytes=max_bytes)
    words = Words()
    try:
        page = PublishedPage.model_validate_json(body, context=words)
    except ValidationError as error:
        raise FeedRefused(FEED, f"not NVD's JSON 2.0 ({first_fault(error)}), but {glimpse(body)}") from None
    words.members(page.model_extra or {}, frozenset(), of="pages")
    distilled = tuple(item.cve for item in page.vulnerabilities if item.cve)
    as_of = page.timestamp if page.timestamp.tzinfo else page.timestamp.replace(tzinfo=UTC)
    issue = Issue(version=page.version, issued=as_of, entries=len(distilled))
    return NvdPage(distilled, len(page.vulnerabilities), page.start_index, page.total_results, issue, words)
