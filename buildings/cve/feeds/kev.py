"""Parses KEV, CISA's JSON catalog of exploited vulnerabilities: the members of an entry that are read. Refuses a malformed one whole."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
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

from buildings.cve.arguments import PATTERN
from buildings.cve.enrichment import says_end_of_life
from buildings.cve.feeds.acceptance import AHEAD, REMEDY, FeedRefused, Issue, first_fault, glimpse
from buildings.cve.feeds.download import MAX_UNPACKED_BYTES, whole

FEED = "KEV"
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


@dataclass(frozen=True)
class KevCatalog:
    """One release of the catalog."""

    version: str
    released_at: datetime
    entries: Mapping[str, KevEntry]

    @property
    def issue(self) -> Issue:
        """Its version, time and size, to compare with another release."""
        return Issue(version=self.version, issued=self.released_at, entries=len(self.entries))


def _as_written(value: Any) -> Any:
    """The text of a date or time; raises ValueError for a number, which would be read as seconds since 1970."""
    if not isinstance(value, str) or not WRITTEN_DATE.match(value.strip()):
        raise ValueError("a date is text that begins with YYYY-MM-DD")
    return value.strip()


PublishedDate = Annotated[date, BeforeValidator(_as_written)]


class Published(BaseModel):
    """Base of what is read: names as CISA spells them, blanks stripped, members that are not needed ignored."""

    model_config = ConfigDict(alias_generator=AliasGenerator(validation_alias=to_camel), str_strip_whitespace=True)


class PublishedEntry(Published):
    """One of the catalog's `vulnerabilities`."""

    cve_id: Annotated[str, StringConstraints(pattern=PATTERN, to_upper=True), Field(validation_alias="cveID")]
    vendor_project: str
    product: str
    date_added: PublishedDate
    due_date: Annotated[PublishedDate | None, BeforeValidator(lambda text: text or None)] = None
    required_action: str = ""
    known_ransomware_campaign_use: str = "Unknown"

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
        )


class PublishedCatalog(Published):
    """The file."""

    catalog_version: str
    date_released: Annotated[AwareDatetime, BeforeValidator(_as_written)]
    count: int
    vulnerabilities: list[PublishedEntry]


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
    newest_first = sorted((one.entry() for one in read.vulnerabilities), key=lambda entry: entry.date_added, reverse=True)
    return KevCatalog(read.catalog_version, read.date_released, {entry.cve_id: entry for entry in newest_first})


def check_listing_days(catalog: KevCatalog, *, now: datetime) -> None:
    """Raise FeedRefused when a CVE was listed in the future, beyond a day."""
    for entry in catalog.entries.values():
        if entry.date_added > (now + AHEAD).date():
            raise FeedRefused(FEED, f"{catalog.issue} says that {entry.cve_id} was added on {entry.date_added}, in the future; {REMEDY}")
