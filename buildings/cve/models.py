"""The result models of the CVE tools, with a description of every member; unknown is null, never 0."""

from collections.abc import Iterable
from datetime import date
from typing import Any, ClassVar, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from pydantic.config import JsonDict
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from buildings.cve.nvd.records import NvdRecordState
from buildings.cve.ranking.deadlines import Deadlines, When
from buildings.cve.ranking.enrichment import PatchStatus, Severity, SeveritySource
from buildings.cve.text_tables import csv_of, document, markdown_table, warnings_of

EXAMPLE: JsonDict = {
    "rank": 12,
    "cve_id": "CVE-2021-44228",
    "score": 48.59,
    "kev": True,
    "kev_date_added": "2021-12-10",
    "kev_due_date": "2021-12-24",
    "ransomware": True,
    "epss": 0.94358,
    "epss_percentile": 0.99959,
    "severity": "CRITICAL",
    "severity_source": "nvd",
    "cvss": {"score": 10.0, "version": "3.1", "vector": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:C/C:H/I:H/A:H"},
    "patch_status": "vendor_advisory",
    "patch_evidence": {"url": "https://logging.apache.org/log4j/2.x/security.html", "date": "2026-01-30"},
    "vendor": "Apache",
    "product": "Log4j2",
    "nvd_record": "read",
    "exploit_reference": None,
    "factors": {"kev": 25.0, "epss": 23.59, "recency": 0.0},
}
EXAMPLE_OF_VERDICT: JsonDict = {
    "ok": True,
    "day": "2026-01-31",
    "found": True,
    "stale": False,
    "of": 363512,
    "when": "today",
    "why": "Fix today: ransomware campaigns use it.",
    **EXAMPLE,
    "kev_removed_on": None,
    "nvd": None,
}

BRIEF_COLUMNS = (
    *("rank", "cve_id", "score", "kev_date_added", "kev_due_date", "ransomware", "epss", "epss_percentile", "severity"),
    *("severity_source", "patch_status", "vendor", "product"),
)

SEVERITY = "CVSS severity label; UNKNOWN if NVD has no rating of it, or its record was not read yet."

KEV_REMOVED = "Day of the first list after CISA removed it from KEV; null if it was not removed."
UNREADABLE_DAY = "a day that cannot be read"
KEV_DATE = "Day on which CISA added it to KEV; null if not in KEV, or if CISA's date cannot be read."
KEV_DUE = (
    "CISA's own due date in KEV; null if not in KEV, or not known. For entries added before 2026-06-10 it follows from a directive that was"
    " revoked since: cve_verdict has the `deadlines` of the one in force."
)
WHEN = (
    "today: CISA's directive BOD 26-04 gives 3 days, or ransomware campaigns use it, or its due date in KEV, if set under that directive,"
    " is tomorrow or earlier. this_week: 14 days, or else EPSS is 0.1 or more, or CISA's SSVC says that it is exploited. later: all others,"
    " with 60 days or until the next upgrade. Where a row is unknown the strictest counts in KEV, the laxest outside it."
)
WHEN_IF_EXPOSED = "The same on assets that are exposed to the internet, where that is more urgent and `exposed` is unknown. Else left out."
KEV_RELEASE = "Only if CISA's date cannot be read: day of the first release of KEV with it, from which its recency counts."
KEV_UNREADABLE = "What cannot be read of CISA's entry, as CISA names it, such as dueDate: that is unknown here. Left out if nothing."

Day = date  # `date` under a name that a member called `date` does not shadow.


class ResultPart(BaseModel):
    """Base of all results; a field with a serialization alias is sent under that name."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)

    always_conforms: ClassVar[bool] = True


def left_out(description: str, *, when: Any = None) -> Any:
    """A member that is left out of the JSON where it says nothing."""
    return Field(default=when, exclude_if=lambda value: value == when, description=description)


def only_when_true(description: str) -> Any:
    return left_out(f"{description} Left out otherwise.", when=False)


class Result(ResultPart):
    """Base of a tool's whole result."""

    ok: Literal[True] = Field(description="Always true: a refused call returns an error instead.")


class Answer(Result):
    """Base of the answers about a list."""

    day: date = Field(description="Day on which the list was made (UTC).")
    sample: bool = only_when_true(
        "True if this is the built-in sample, because no list has been made from the feeds yet: do not act on it."
    )


class Factors(ResultPart):
    """The parts of the score, in points."""

    kev: float = Field(description="25 if the CVE is in KEV, else 0.")
    epss: float = Field(description="25 times the EPSS probability; 0 if EPSS has no score for it.")
    recency: float = Field(description="For a CVE in KEV: 50 on the day of its listing, halved every 30 days. Else 0.")


class Cvss(ResultPart):
    """A CVSS base score."""

    score: float = Field(description="Base score, 0.0 to 10.0.")
    version: str = Field(description="CVSS version: 4.0, 3.1, 3.0 or 2.0. Scores of different versions cannot be compared.")
    vector: str | None = Field(description="Vector string; null if the source does not publish it.")


class PatchEvidence(ResultPart):
    """The source of a patch status."""

    url: str = Field(description="Address of the page.")
    date: Day = Field(description="Day of the statement: NVD's last change of its record, or CISA's listing.")


class Place(ResultPart):
    """Where a CVE stands in the ranked set, by what the order follows from."""

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


class Entry(Place):
    """One CVE of the ranked set."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    epss_percentile: float | None = Field(
        description="Share of all scored CVEs with the same or a lower EPSS, 0 to 1; null if not scored yet."
    )
    severity: Severity = Field(description=SEVERITY)
    severity_source: SeveritySource | None = Field(
        description="Source of the rating: nvd (NVD's analysts), else cna (who assigned the CVE), else cisa-adp (CISA); null if none."
    )
    cvss: Cvss | None = Field(description="CVSS base score of the same source; null if severity is UNKNOWN.")
    patch_status: PatchStatus = Field(
        description="no_fix_eol: CISA says the product is at its end of life. fix_reference: NVD tags a link as Patch. "
        "vendor_advisory: NVD tags a link as Vendor Advisory. unknown: none of these, or NVD's record was not read: see nvd_record. "
        "No feed tells whether a fix is complete or installed."
    )
    patch_evidence: PatchEvidence | None = Field(description="Page and day that patch_status is based on; null if unknown.")
    vendor: str | None = Field(description="Vendor name, from KEV, else from NVD; null if neither has it.")
    product: str | None = Field(description="Product name, from KEV, else from NVD; null if neither has it.")
    nvd_record: NvdRecordState | None = Field(
        default=None,
        description="read: NVD's record of the CVE was read, and UNKNOWN or null means that it does not say. not_read: it was not read "
        "yet, so severity, patch status and names may be missing here. absent: NVD has none, which only its API shows, not a file. Null in "
        "lists made before this was recorded.",
    )
    exploit_reference: str | None = Field(
        default=None, description="A page that NVD tags as Exploit; null if there is none or the record was not read."
    )
    factors: Factors = Field(description="Points that make up the score.")
    kev_first_release: date | None = left_out(KEV_RELEASE)
    kev_unreadable: tuple[str, ...] = left_out(KEV_UNREADABLE, when=())


class Rating(Cvss):
    """A CVSS base score with its label and source."""

    severity: Severity = Field(description="CVSS severity label.")
    source: SeveritySource = Field(description="nvd (NVD's analysts), cna (who assigned the CVE) or cisa-adp (CISA).")


class Affected(ResultPart):
    """A vulnerable product."""

    vendor: str = Field(description="Vendor in NVD's product dictionary.")
    product: str = Field(description="Product in NVD's product dictionary.")
    versions: str = Field(description="Vulnerable versions: * for all, one version, or a range such as >=2.0 <2.3.1.")


class Ssvc(ResultPart):
    """CISA's decision points for the CVE (SSVC)."""

    exploitation: str | None = Field(description="none, poc or active; null if not published.")
    automatable: str | None = Field(description="yes or no; null if not published.")
    technical_impact: str | None = Field(description="partial or total; null if not published.")


class NvdDetails(ResultPart):
    """NVD's record of the CVE."""

    status: str = Field(description="NVD's status of the record, such as Analyzed or Awaiting Analysis.")
    published: Day | None = Field(description="Day on which NVD published the record; null if it does not say.")
    modified: Day = Field(description="Day of NVD's last change of the record.")
    ratings: tuple[Rating, ...] = Field(description="A rating of each CVSS version, the newest version first.")
    cwes: tuple[str, ...] = Field(description="Kinds of weakness, as CWE identifiers.")
    affected: tuple[Affected, ...] = Field(description="Vulnerable products, at most 20.")
    affected_count: int = Field(description="Number of vulnerable products and version ranges that NVD lists.")
    ssvc: Ssvc | None = Field(description="CISA's decision points; null if NVD's record has none.")


class KevListing(ResultPart):
    """What CISA says of a vulnerability in KEV."""

    name: str = Field(description="CISA's name of the vulnerability; empty if its catalog has none.")
    description: str = Field(description="What the vulnerability is, in CISA's words; empty if its catalog does not say.")
    required_action: str = Field(description="What CISA wants done; empty if the catalog does not say.")
    vendor: str = Field(description="Vendor name.")
    product: str = Field(description="Product name.")
    date_added: date | None = Field(description="Day on which CISA added it to KEV; null if CISA's date cannot be read.")
    due_date: date | None = Field(
        description="CISA's own due date; null if the catalog does not say. Before 2026-06-10 set under a directive that was revoked since."
    )
    forensic_triage: bool | None = Field(
        description="Whether CISA wants assets examined for a compromise; null if the catalog does not say."
    )
    ransomware: bool | None = Field(
        description="True if CISA reports its use in ransomware campaigns; null if CISA does not report it. Never false."
    )
    first_release: date | None = left_out(KEV_RELEASE)
    unreadable: tuple[str, ...] = left_out(KEV_UNREADABLE, when=())


class SourcePage(ResultPart):
    """A page about a CVE."""

    name: str = Field(
        description="Whose page it is: NVD, CVE.org, CISA, or the host of a page that CISA names, of several of a host with its end."
    )
    url: str = Field(description="Address of the page.")


class About(ResultPart):
    """What a vulnerability is, in the words of public sources."""

    listing: KevListing | None = Field(default=None, description="What CISA says of it in KEV; null if it is not in KEV.")
    deadlines: Deadlines | None = Field(
        default=None,
        description="By when to fix it after CISA's directive BOD 26-04, which binds US federal civilian agencies and is advice to everyone"
        " else. Null for what is no vulnerability, as far as is known.",
    )
    links: tuple[SourcePage, ...] = Field(
        default=(), description="Where to read on: NVD, CVE.org, CISA's catalog, and the pages that CISA names, such as the vendor's."
    )


class Feed(ResultPart):
    """One feed behind a list."""

    version: str | None = Field(
        description="Version of the catalog (KEV), the model (EPSS: ranks of different models cannot be compared) or the format (NVD)."
    )
    date: Day | None = Field(description="Day of the feed: KEV's release, EPSS's score date, NVD's last response. Null if never read.")
    age_days: int | None = Field(
        description="Days from that date to now, or to the day of the list in an archived brief. Null if never read."
    )
    entries: int | None = Field(description="Number of CVEs in the feed; of NVD, that were read so far. Null if never read.")
    total: int | None = Field(default=None, description="NVD only: number of its records, while not all of them have been read; else null.")
    held_because: str | None = Field(
        default=None,
        description="KEV and EPSS only: why the newest issue could not be used, so that the list was made from the one before; else null.",
    )
    unreadable: tuple[str, ...] = left_out(
        "Entries, members or lines that could not be read, new ones first; what they had said is kept. Left out if none.", when=()
    )


class Feeds(ResultPart):
    """The three feeds behind a list."""

    kev: Feed = Field(description="CISA's Known Exploited Vulnerabilities catalog.")
    epss: Feed = Field(description="The Exploit Prediction Scoring System, by FIRST.")
    nvd: Feed = Field(description="The US National Vulnerability Database: severity, references and names.")


class Backtest(ResultPart):
    """How well one ranking performed on past data."""

    ranking: str = Field(description="Name of the ranking.")
    auc: float = Field(
        description="Probability that, among CVEs in KEV, one newly tied to ransomware within 30 days ranked above one that was not."
    )
    ransomware_in_top_25: float = Field(description="Share of the CVEs newly tied to ransomware that were in its first 25, 0 to 1.")
    new_listings_in_top_25: float | None = Field(
        description="Number of CVEs in its first 25 out of the 5.1 added to KEV in an average week; null if not measured."
    )


class Methodology(ResultPart):
    """How the ranking is made, the evidence for it, and its limits."""

    formula: str = Field(description="Formula of the score.")
    terms: tuple[str, ...] = Field(description="Terms of the formula and their weights.")
    order: tuple[str, ...] = Field(description="How CVEs with equal scores are ordered.")
    ranked: str = Field(description="Which CVEs are ranked.")
    sources: tuple[str, ...] = Field(description="Where severity, patch status and names come from.")
    evidence: tuple[str, ...] = Field(description="Results measured on past data, in words.")
    backtest: tuple[Backtest, ...] = Field(description="The same results in figures.")
    limits: tuple[str, ...] = Field(description="What the ranking cannot tell you.")


class Brief(Answer):
    """A day's full ranked list."""

    other_formats: ClassVar = {"text/csv": "as_csv", "text/markdown": "as_markdown"}

    edition: int = Field(
        default=1, ge=1, description="1 as first published that day. Above 1: a corrected edition; the earlier ones stay in the archive."
    )
    generated_at: AwareDatetime = Field(description="When the list was made (UTC).")
    stale: bool = Field(description="True if EPSS is older than 3 days or KEV older than 14 days.")
    source: str = Field(description="Data sources and basis of the ranking, in one line.")
    count: int = Field(description="Number of entries of the list.")
    entries: tuple[Entry, ...] = Field(description="First 25 CVEs of the ranked set, or as many as were asked for, in rank order.")
    methodology: Methodology | None = Field(description="How the ranking is made, with its evidence and limits; null if not asked for.")
    feeds: Feeds = Field(description="Version, date and age of each feed.")
    notices: tuple[str, ...] = Field(description="Notices that the publishers of the feeds require.")

    def cut(self, limit: int, *, methodology: bool) -> "Brief":
        """The same list with its first entries only, and without the methodology unless it is wanted."""
        if methodology and limit >= len(self.entries):
            return self
        return self.model_copy(update={"entries": self.entries[:limit], "methodology": self.methodology if methodology else None})

    def as_csv(self) -> str:
        return csv_of_entries(self.entries)

    def as_markdown(self) -> str:
        head = [f"# CVEs to fix first on {self.day}", "", *warnings_of(sample=self.sample, stale=self.stale)]
        return document(*head, *table_of_entries(self.entries), notices=self.notices)


def csv_of_entries(entries: Iterable[Entry]) -> str:
    return csv_of(BRIEF_COLUMNS, ([getattr(entry, name) for name in BRIEF_COLUMNS] for entry in entries))


def table_of_entries(entries: Iterable[Entry]) -> list[str]:
    rows = (
        (
            *(
                one.rank,
                one.cve_id,
                one.score,
                one.kev_date_added or ("date unknown" if one.kev else None),
                one.kev_due_date,
                one.ransomware,
                one.epss,
                one.severity,
            ),
            *(one.patch_status.replace("_", " "), f"{one.vendor or ''} {one.product or ''}"),
        )
        for one in entries
    )
    columns = ("#rank", "CVE", "#score", "in KEV since", "due in KEV", "ransomware", "#EPSS", "severity", "patch", "product")
    return markdown_table(columns, rows)


class TeaserEntry(ResultPart):
    """One CVE of the teaser."""

    rank: str = Field(description="Rank as a string of digits, 1 to 3.", examples=["1"])
    cve_id: str = Field(description="CVE identifier in the form CVE-<year>-<number>.")
    vendor: str = Field(description="Vendor name.")
    product: str = Field(description="Product name.")
    severity: Severity = Field(description=SEVERITY)


class Teaser(Answer):
    """The first three of the day."""

    source: str = Field(description="Data sources and basis of the ranking, in one line.")
    teaser: tuple[TeaserEntry, ...] = Field(description="First three CVEs of the day, in rank order, without scores.")
    full_list: str = Field(description="How to get the full list, and its price.")
    stale: bool = only_when_true("True if EPSS is older than 3 days or KEV older than 14 days.")


class FreshList(Answer):
    """The CVEs added to KEV within a week."""

    model_config = ConfigDict(validate_by_name=True)
    other_formats: ClassVar = {"text/csv": "as_csv", "text/markdown": "as_markdown"}

    stale: bool = Field(description="True if EPSS is older than 3 days or KEV older than 14 days.")
    window_days: int = Field(description="Length of the window, in days.")
    first_day: date = Field(serialization_alias="from", validation_alias="from", description="First day of the window.")
    last_day: date = Field(
        serialization_alias="to", validation_alias="to", description="Last day of the window, which is the day of the list."
    )
    count: int = Field(description="Number of CVEs added to KEV in the window.")
    entries: tuple[Entry, ...] = Field(
        description="Every CVE added to KEV in the window, or as many as were asked for, by rank in the day's ranked set."
    )

    def as_csv(self) -> str:
        return csv_of_entries(self.entries)

    def as_markdown(self) -> str:
        head = [f"# Added to KEV from {self.first_day} to {self.last_day}", "", *warnings_of(sample=self.sample, stale=self.stale)]
        return document(*head, *table_of_entries(self.entries), notices=())


class Found(Answer):
    """The members of a verdict that come before the CVE's own."""

    found: Literal[True] = Field(description="True if the CVE is in the day's ranked set.")
    stale: bool = Field(description="True if EPSS is older than 3 days or KEV older than 14 days.")
    of: int = Field(description="Number of ranked CVEs.")
    when: When = Field(description=f"When to fix it. {WHEN}")
    when_if_exposed: When | None = left_out(WHEN_IF_EXPOSED)
    why: str = Field(description="When to fix it and why, in a sentence; `deadlines` has the directive's rows and days.")


MissReason = Literal["removed_from_kev", "not_yet_scored", "unreadable", "rejected", "unknown"]


class MissCause(ResultPart):
    """Why a CVE is not ranked."""

    reason: MissReason = Field(
        description="removed_from_kev: CISA removed it, and EPSS has no score for it. not_yet_scored: NVD lists it, and EPSS scores it "
        "within about 48 hours. unreadable: what EPSS says of it cannot be read. rejected: NVD says that the identifier was withdrawn. "
        "unknown: none of the feeds lists it, as far as they were read."
    )
    explanation: str = Field(description="The reason in a sentence, and what to do next.")


class CveFacts(About, Answer):
    """What public sources say of one CVE."""

    stale: bool = Field(description="True if EPSS is older than 3 days or KEV older than 14 days.")
    cve_id: str = Field(description="CVE identifier in the form CVE-<year>-<number>.")
    description: str | None = Field(
        default=None, description="What the vulnerability is, in NVD's words, at most 800 characters; null if NVD's record was not read."
    )
    epss: float | None = Field(description="EPSS: probability that it is exploited in the next 30 days, 0 to 1; null if not scored yet.")
    severity: Severity = Field(description=SEVERITY)
    nvd: NvdDetails | None = Field(description="What NVD's record says; null if it was not read or does not exist.")
    verdict: str | None = Field(description="How to get its rank, score and their factors, and at what price; null if it has none.")
    miss: MissCause | None = Field(default=None, description="Why it has no rank, so that cve_verdict knows no more; null if it has one.")
    kev_removed_on: date | None = Field(default=None, description=KEV_REMOVED)


class Verdict(Entry, About, Found):
    """One CVE's place in the day's ranked set."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE_OF_VERDICT]})

    kev_removed_on: date | None = Field(description=KEV_REMOVED)
    nvd: NvdDetails | None = Field(default=None, description="What NVD's record says; null if it was not read or does not exist.")


class Miss(Answer):
    """The answer for a CVE that is not ranked."""

    found: Literal[False] = Field(description="True if the CVE is in the day's ranked set.")
    stale: bool = Field(description="True if EPSS is older than 3 days or KEV older than 14 days.")
    of: int = Field(description="Number of ranked CVEs.")
    cve_id: str = Field(description="CVE identifier in the form CVE-<year>-<number>.")
    miss: MissCause = Field(description="Why it is not ranked.")


class Untitled(GenerateJsonSchema):
    """Schemas without pydantic's titles, which only repeat the names of fields; FastMCP leaves them out too."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def either(*models: type[BaseModel]) -> dict[str, Any]:
    """One object schema for an answer of one of several shapes. Of each member it has only the rules that all shapes share.

    MCP wants an object at the root of an output schema, which a union is not.
    """
    by_model, shared = models_json_schema([(model, "serialization") for model in models], schema_generator=Untitled)
    definitions: dict[str, Any] = shared["$defs"]
    shapes = [definitions.pop(by_model[model, "serialization"]["$ref"].rpartition("/")[2]) for model in models]
    properties: dict[str, Any] = {}
    for shape in shapes:
        for name, schema in shape["properties"].items():
            known = properties.get(name, schema)
            properties[name] = {keyword: value for keyword, value in schema.items() if known.get(keyword) == value}
    required = [name for name in shapes[0]["required"] if all(name in shape["required"] for shape in shapes)]
    examples = [example for shape in shapes for example in shape.get("examples", ())]
    return {"type": "object", "properties": properties, "required": required, "examples": examples, "$defs": definitions}
