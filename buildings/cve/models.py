"""What the tools answer: frozen, typed, every member described; unknown is null, never 0."""

from datetime import date, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from buildings.cve.enrichment import PatchStatus, Severity, SeveritySource

Day = date
"""The same under a name that a member called `date` does not hide."""


class Part(BaseModel):
    """Base of all that is answered; a member with a serialization alias is sent under it."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)


def only_when_true(description: str) -> Any:
    """A member that is left out unless it is true."""
    return Field(default=False, exclude_if=lambda value: not value, description=f"{description} Left out otherwise.")


class Answer(Part):
    """What every answer says of itself."""

    ok: Literal[True] = Field(description="Always true in an answer; a refusal is a problem instead.")
    day: date = Field(description="The UTC day on which the list was made.")
    sample: bool = only_when_true("True while the shipped sample is shown, because no list was ever made from the feeds: not for use.")


class Factors(Part):
    """What the score is made of, in points."""

    kev: float = Field(description="25 when the CVE is in KEV, else 0.")
    epss: float = Field(description="25 times the EPSS probability; 0 while there is none.")
    recency: float = Field(description="For a CVE in KEV 50 on the day of its listing, half of it every 30 days; else 0.")


class Cvss(Part):
    """A CVSS base score."""

    score: float = Field(description="The base score, 0.0 to 10.0.")
    version: str = Field(description="The CVSS version: 4.0, 3.1, 3.0 or 2.0; their scores cannot be compared.")
    vector: str | None = Field(description="The vector string, where the source gives it.")


class PatchEvidence(Part):
    """Where a patch status can be checked."""

    url: str = Field(description="The page that says so.")
    date: Day = Field(description="The day of that statement: NVD's last change of its record, or CISA's listing.")


class Entry(Part):
    """One CVE of the ranked set."""

    rank: int = Field(description="Its place, 1 is first; every CVE that KEV or EPSS knows has one, and no two share it.")
    cve_id: str = Field(description="The CVE identifier, CVE-<year>-<number>.")
    score: float = Field(
        description="The priority score, 0 to 100, to three decimals. Above 25: in KEV. Above 50: in KEV and listed lately."
    )
    kev: bool = Field(description="Whether it is in CISA's catalog of known exploited vulnerabilities (KEV).")
    kev_date_added: date | None = Field(description="The day on which CISA added it to KEV; null when it is not in KEV.")
    kev_due_date: date | None = Field(description="The day by which US federal agencies must have acted; null when it is not in KEV.")
    ransomware: bool | None = Field(description="True when CISA knows of its use in ransomware campaigns; null when CISA does not say so.")
    epss: float | None = Field(
        description="EPSS: the probability, 0 to 1, of its being exploited in the next 30 days; null when not yet scored."
    )
    epss_percentile: float | None = Field(
        description="The share of all scored CVEs with the same or a lower EPSS, 0 to 1; null when not yet scored."
    )
    severity: Severity = Field(description="The CVSS severity label; UNKNOWN when nobody has rated it.")
    severity_source: SeveritySource | None = Field(
        description="Who rated it: nvd (NVD's analysts), else cna (the authority that assigned it), else cisa-adp (CISA); null: nobody."
    )
    cvss: Cvss | None = Field(description="The CVSS base score of that same source; null when nobody has rated it.")
    patch_status: PatchStatus = Field(
        description="no_fix_eol: CISA says the product is at its end of life. fix_reference: NVD tags a link as Patch. "
        "vendor_advisory: NVD tags a link as Vendor Advisory. unknown: none of these. No feed says that a fix is applied or complete."
    )
    patch_evidence: PatchEvidence | None = Field(description="The page behind patch_status and its day; null when unknown.")
    vendor: str | None = Field(description="The vendor's name, from KEV, else from NVD's product names.")
    product: str | None = Field(description="The product's name, from KEV, else from NVD's product names.")
    factors: Factors = Field(description="The points that make up the score.")


class Feed(Part):
    """One feed behind a list."""

    version: str | None = Field(
        description="KEV: the catalog's version. EPSS: the model's; ranks are not comparable across models. NVD: the format's."
    )
    date: Day | None = Field(description="The feed's own day: KEV's release, EPSS's score date, NVD's last answer; null: never read.")
    age_days: int | None = Field(description="Whole days from that day to now (in an archived brief: to its own day).")
    entries: int | None = Field(description="How many CVEs the feed told of.")


class Feeds(Part):
    """The three feeds behind a list."""

    kev: Feed = Field(description="CISA's known exploited vulnerabilities catalog.")
    epss: Feed = Field(description="The Exploit Prediction Scoring System, by FIRST.")
    nvd: Feed = Field(description="The US National Vulnerability Database: severity, references and names.")


class Backtest(Part):
    """How one way of ranking did on past data."""

    ranking: str = Field(description="What was ranked by.")
    auc: float = Field(
        description="Chance that, among CVEs in KEV, one newly tied to ransomware within 30 days stood above one that was not."
    )
    ransomware_in_top_25: float = Field(description="Share of those newly tied to ransomware that stood in its first 25.")
    new_listings_in_top_25: float | None = Field(
        description="Of 5.1 CVEs added to KEV in a week, how many stood in its first 25; null: not measured."
    )


class Methodology(Part):
    """How the ranking is made, what speaks for it, and what it cannot do."""

    formula: str = Field(description="The score.")
    terms: tuple[str, ...] = Field(description="What stands in the formula, and its weight.")
    order: tuple[str, ...] = Field(description="How equal scores are ordered.")
    ranked: str = Field(description="Which CVEs are ranked.")
    sources: tuple[str, ...] = Field(description="Where severity, patch status and names come from.")
    evidence: tuple[str, ...] = Field(description="What was measured on past data, in words.")
    backtest: tuple[Backtest, ...] = Field(description="The same, in figures.")
    limits: tuple[str, ...] = Field(description="What the ranking cannot tell.")


class Brief(Answer):
    """A day's full ranked list."""

    generated_at: datetime = Field(description="When the list was made, UTC.")
    stale: bool = Field(description="True when EPSS is older than 3 days or KEV older than 14: `feeds` tells their ages.")
    source: str = Field(description="The data and the basis of the ranking, in one line.")
    count: int = Field(description="How many entries follow.")
    entries: tuple[Entry, ...] = Field(description="The first 25 CVEs of the ranked set, in rank order.")
    methodology: Methodology = Field(description="How the ranking is made, with its evidence and limits.")
    feeds: Feeds = Field(description="Version, day and age of each feed.")
    notices: tuple[str, ...] = Field(description="What the feeds' publishers ask to be said.")


class TeaserEntry(Part):
    """One CVE of the teaser."""

    rank: str = Field(description="The rank as a string of digits, 1 to 3.", examples=["1"])
    cve_id: str = Field(description="The CVE identifier, CVE-<year>-<number>.")
    vendor: str = Field(description="The vendor's name.")
    product: str = Field(description="The product's name.")
    severity: Severity = Field(description="The CVSS severity label; UNKNOWN when nobody has rated it.")


class Teaser(Answer):
    """The first three of the day."""

    source: str = Field(description="The data and the basis of the ranking, in one line.")
    teaser: tuple[TeaserEntry, ...] = Field(description="The day's first three CVEs in rank order, without scores.")
    full_list: str = Field(description="Where the full list is had, and its price.")
    stale: bool = only_when_true("True while EPSS is older than 3 days or KEV older than 14.")


class FreshList(Answer):
    """What was added to KEV within a week."""

    stale: bool = Field(description="True when EPSS is older than 3 days or KEV older than 14.")
    window_days: int = Field(description="The length of the window in days.")
    first_day: date = Field(serialization_alias="from", description="The window's first day.")
    last_day: date = Field(serialization_alias="to", description="The window's last day: the list's own.")
    count: int = Field(description="How many entries follow; 0 in a week without additions.")
    entries: tuple[Entry, ...] = Field(description="Every CVE added to KEV in the window, with rank and score in the day's ranked set.")


class Found(Answer):
    """What a verdict says before the CVE itself."""

    found: Literal[True] = Field(description="Whether the CVE is in the day's ranked set.")
    stale: bool = Field(description="True when EPSS is older than 3 days or KEV older than 14.")
    of: int = Field(description="How many CVEs are ranked.")


class Verdict(Entry, Found):
    """One CVE's place in the day's ranked set."""

    kev_removed_on: date | None = Field(
        description="The day of the first list after CISA took it out of KEV; null when that did not happen."
    )


MissReason = Literal["removed_from_kev", "not_yet_scored", "rejected", "unknown"]


class MissCause(Part):
    """Why a CVE is not ranked."""

    reason: MissReason = Field(
        description="removed_from_kev: CISA took it out, and EPSS does not score it. not_yet_scored: NVD knows it, EPSS scores it within "
        "some 48 hours. rejected: the identifier was withdrawn. unknown: none of the feeds knows it."
    )
    explanation: str = Field(description="The same in a sentence, and what to do.")


class Miss(Answer):
    """The honest answer for a CVE that is not ranked."""

    found: Literal[False] = Field(description="Whether the CVE is in the day's ranked set.")
    stale: bool = Field(description="True when EPSS is older than 3 days or KEV older than 14.")
    of: int = Field(description="How many CVEs are ranked.")
    cve_id: str = Field(description="The CVE identifier, CVE-<year>-<number>.")
    miss: MissCause = Field(description="Why it is not ranked.")


class Untitled(GenerateJsonSchema):
    """Schemas without pydantic's titles, which only repeat the names of fields; FastMCP leaves them out too."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def either(*models: type[BaseModel]) -> dict[str, Any]:
    """One object schema for an answer of one of several shapes: only what all of them say of a member is said.

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
    return {"type": "object", "properties": properties, "required": required, "$defs": definitions}
