"""Parses KEV, CISA's JSON catalog of exploited vulnerabilities: the members of an entry that are read. A few that are odd are left out."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Annotated, Any

from pydantic import (
    AliasGenerator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)
from pydantic.alias_generators import to_camel

from buildings.cve.arguments import PATTERN, canonical
from buildings.cve.feeds.download import MAX_UNPACKED_BYTES, whole
from buildings.cve.feeds.errors import FeedRefused, first_fault, glimpse
from buildings.cve.feeds.issue import Issue
from buildings.cve.ranking.enrichment import says_end_of_life

FEED = "KEV"
MOST_UNREADABLE = 10
"""Entries with something that cannot be read; a release with more is refused."""
LONGEST_TEXT, LONGEST_LINK, MOST_LINKS = 4_000, 500, 10
LINK = re.compile(r"https?://[\w.-]+(?::[0-9]+)?(?:[/?#][^\s;,<>\"]*)?")
WRITTEN_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class KevEntry:
    """One listing, as far as the lists need it; `vendor` and `product` are empty if the catalog has none.

    Lists of past days are stored with it, as JSON: a field that is added needs a default.
    """

    cve_id: str
    vendor: str
    product: str
    date_added: date
    due_date: date | None
    ransomware: bool
    end_of_life: bool
    name: str = ""
    description: str = ""
    required_action: str = ""
    links: tuple[str, ...] = ()
    """The pages that CISA names in its notes, such as the vendor's."""


@dataclass(frozen=True)
class KevCatalog:
    """One release of the catalog. `unreadable` names what cannot be read, `gaps` say what that leaves open."""

    version: str
    released_at: datetime
    entries: Mapping[str, KevEntry]
    unreadable: tuple[str, ...] = ()
    gaps: Sequence["Gap"] = ()

    @property
    def issue(self) -> Issue:
        """Its version, time and size, to compare with another release."""
        return Issue(version=self.version, issued=self.released_at, entries=len(self.entries), unreadable=self.unreadable)

    def completed(self, used: Mapping[str, KevEntry]) -> "KevCatalog":
        """The catalog with what cannot be read as it is in the release in use: that it cannot be read does not say that it changed."""
        entries = dict(self.entries)
        for gap in self.gaps:
            if gap.cve_id is None:  # it may be the entry of any CVE that seems to be gone
                entries = {**used, **entries}
            elif (held := used.get(gap.cve_id)) and gap.members:
                names = {*gap.members, *(["end_of_life"] if "required_action" in gap.members else ())}
                entries[gap.cve_id] = replace(entries[gap.cve_id], **{name: getattr(held, name) for name in names})
            elif held:
                entries.setdefault(gap.cve_id, held)
        return replace(self, entries=entries)


@dataclass(frozen=True)
class Gap:
    """What of an entry is not known: some `members`, or without any the whole entry; `cve_id` is None if that cannot be read either."""

    text: str
    cve_id: str | None
    members: Sequence[str] = ()


def _as_written(value: Any) -> Any:
    """The text of a date or time; raises ValueError for a number, which would be read as seconds since 1970."""
    if not isinstance(value, str) or not WRITTEN_DATE.match(value.strip()):
        raise ValueError("a date is text that begins with YYYY-MM-DD")
    return value.strip()


PublishedDate = Annotated[date, BeforeValidator(_as_written)]
MEMBERS = {
    "vendorProject": "vendor",
    "product": "product",
    "dueDate": "due_date",
    "requiredAction": "required_action",
    "knownRansomwareCampaignUse": "ransomware",
    "vulnerabilityName": "name",
    "shortDescription": "description",
    "notes": "links",
}
"""The members that an entry may lack, and what is kept of each."""


class Published(BaseModel):
    """Base of what is read: names as CISA spells them, blanks stripped, members that are not needed ignored."""

    model_config = ConfigDict(alias_generator=AliasGenerator(validation_alias=to_camel), str_strip_whitespace=True)


class PublishedEntry(Published):
    """One of the catalog's `vulnerabilities`."""

    cve_id: Annotated[str, StringConstraints(pattern=PATTERN, to_upper=True), Field(validation_alias="cveID")]
    date_added: PublishedDate
    vendor_project: str = ""
    product: str = ""
    due_date: Annotated[PublishedDate | None, BeforeValidator(lambda text: text or None)] = None
    required_action: str = ""
    vulnerability_name: str = ""
    short_description: str = ""
    notes: str = ""
    known_ransomware_campaign_use: Annotated[str, StringConstraints(pattern="^(?i:known|unknown)$")] = "Unknown"

    def entry(self) -> KevEntry:
        """The entry, reduced to what the lists need."""
        return KevEntry(
            self.cve_id,
            self.vendor_project,
            self.product,
            self.date_added,
            self.due_date,
            ransomware=self.known_ransomware_campaign_use.lower() == "known",
            end_of_life=says_end_of_life(self.required_action),
            name=self.vulnerability_name[:LONGEST_TEXT],
            description=self.short_description[:LONGEST_TEXT],
            required_action=self.required_action[:LONGEST_TEXT],
            links=tuple(dict.fromkeys(link for link in LINK.findall(self.notes) if len(link) <= LONGEST_LINK))[:MOST_LINKS],
        )


class PublishedCatalog(Published):
    """The file."""

    catalog_version: str
    date_released: Annotated[AwareDatetime, BeforeValidator(_as_written)]
    count: int
    vulnerabilities: list[Any]


def parse_kev(sent: bytes, max_bytes: int = MAX_UNPACKED_BYTES) -> KevCatalog:
    """Read a release of the catalog, packed or not. Raises FeedRefused with what was seen.

    One release listed a CVE twice: its earliest listing counts, as it did in the releases before and after.
    """
    body = whole(sent, feed=FEED, max_bytes=max_bytes)
    try:
        read = PublishedCatalog.model_validate_json(body)
    except ValidationError as error:
        raise FeedRefused(FEED, f"not a KEV catalog ({first_fault(error)}), but {glimpse(body)}") from None
    if read.count != len(read.vulnerabilities):
        raise FeedRefused(FEED, f"the catalog announces {read.count:,} entries and holds {len(read.vulnerabilities):,}")
    results = [_read(place, published) for place, published in enumerate(read.vulnerabilities)]
    gaps = [gap for _, gap in results if gap]
    if len(gaps) > MOST_UNREADABLE:
        counted = f"{len(gaps):,} of {len(results):,} entries cannot be read, where {MOST_UNREADABLE} are accepted"
        raise FeedRefused(FEED, f"{counted}; the first: {gaps[0].text}", public=counted)
    newest_first = sorted((entry for entry, _ in results if entry), key=lambda entry: entry.date_added, reverse=True)
    if not newest_first:
        raise FeedRefused(FEED, "a catalog without any entries")
    entries = {entry.cve_id: entry for entry in newest_first}
    return KevCatalog(read.catalog_version, read.date_released, entries, tuple(gap.text for gap in gaps), gaps)


def _read(place: int, published: Any) -> tuple[KevEntry | None, Gap | None]:
    """An entry without the members that cannot be read, and what these are; no entry if it cannot do without them."""
    try:
        return PublishedEntry.model_validate(published).entry(), None
    except ValidationError as error:
        faults = {str(fault["loc"][0]) if fault["loc"] else "": fault for fault in error.errors(include_url=False)}
    named = published.get("cveID") if isinstance(published, dict) else None
    cve_id = canonical(named.strip()) if isinstance(named, str) else None
    seen = ", ".join(f"no {name}" if fault["type"] == "missing" else f"{name} {fault['input']!r:.60}" for name, fault in faults.items())
    text = f"{cve_id or f'entry {place + 1}'}: {seen}"
    if not faults.keys() <= MEMBERS.keys():
        return None, Gap(text, cve_id)
    rest = {name: value for name, value in published.items() if name not in faults}
    return PublishedEntry.model_validate(rest).entry(), Gap(text, cve_id, [MEMBERS[name] for name in faults])
