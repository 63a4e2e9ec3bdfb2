"""Parses KEV, CISA's JSON catalog of exploited vulnerabilities: the members of an entry that are read.

What CISA lists is listed, whatever else of its entry cannot be read: that stays as the release before had it, else it is unknown.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AliasGenerator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
)
from pydantic.alias_generators import to_camel

from buildings.cve.arguments import PATTERN, canonical
from buildings.cve.feeds.download import MAX_UNPACKED_BYTES, whole
from buildings.cve.feeds.errors import FeedRefused, first_fault, glimpse
from buildings.cve.feeds.issue import Issue
from buildings.cve.feeds.vocabulary import Words, form_of
from buildings.cve.ranking.enrichment import says_end_of_life

FEED = "KEV"
MOST_NAMELESS = 10  # Entries whose CVE cannot be read; a release with more is refused.
MOST_NAMED = 20  # So many of the things that cannot be read are named, those of new entries first.
FIRST_LISTING = date(2021, 11, 3)
"""KEV began then: an earlier day of listing is misspelled, and so is one that is more than a day after the release."""
LATER = timedelta(days=1)
LONGEST_TEXT, LONGEST_LINK, MOST_LINKS = 4_000, 500, 10
LINK = re.compile(r"https?://[\w.-]+(?::[0-9]+)?(?:[/?#][^\s;,<>\"]*)?")
WRITTEN_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
ODDLY_SPELLED = re.compile(r"[\W_]*CVE[\W_]*([0-9]{4})[\W_]+([0-9]+)[\W_]*", re.IGNORECASE)
"""An identifier with blanks, or dashes of another kind."""
NVD_LINK = re.compile(r"nvd\.nist\.gov/vuln/detail/(CVE-[0-9]{4}-[0-9]+)", re.IGNORECASE)
"""In the notes of all 1,674 entries of 2026-08-21, and always of the entry's own CVE."""


@dataclass(frozen=True, slots=True)
class KevEntry:
    """One listing, as far as the lists need it; `vendor` and `product` are empty if the catalog has none.

    `unreadable` are the members, as CISA names them, that cannot be read and never could be. What they say is None or empty: of the day
    of listing `first_release` is known, the day of the release that first had the CVE. Lists of past days are stored with it, as JSON: a
    field that is added needs a default.
    """

    cve_id: str
    vendor: str
    product: str
    date_added: date | None
    due_date: date | None
    ransomware: bool | None
    end_of_life: bool
    name: str = ""
    description: str = ""
    required_action: str = ""
    links: tuple[str, ...] = ()  # The pages that CISA names in its notes, such as the vendor's.
    first_release: date | None = None
    unreadable: tuple[str, ...] = ()
    forensic_triage: bool | None = None  # Whether CISA asks for it; None if the entry does not say.

    @property
    def listed_by(self) -> date:
        """The day of listing, else that of the first release: the day from which it is ranked."""
        day = self.date_added or self.first_release
        assert day, "an entry has one of them"
        return day

    @property
    def unknown(self) -> frozenset[str]:
        names = {MEMBERS[member] for member in self.unreadable}
        return frozenset(names | ({"end_of_life"} if "required_action" in names else set()))

    def completed(self, used: "KevEntry") -> "KevEntry":
        """The entry with what cannot be read as it was in the release in use."""
        held = {name: getattr(used, name) for name in self.unknown}
        still = tuple(member for member in self.unreadable if member in used.unreadable)
        return replace(self, **held, first_release=used.first_release if "dateAdded" in still else None, unreadable=still)


@dataclass(frozen=True)
class KevCatalog:
    """One release of the catalog. `unreadable` names what cannot be read, `gaps` say what that leaves open."""

    version: str
    released_at: datetime
    entries: Mapping[str, KevEntry]
    unreadable: tuple[str, ...] = ()
    gaps: Sequence["Gap"] = ()
    words: Words = field(default_factory=Words, compare=False)

    @property
    def issue(self) -> Issue:
        return Issue(version=self.version, issued=self.released_at, entries=len(self.entries), unreadable=self.unreadable)

    def completed(self, used: Mapping[str, KevEntry]) -> "KevCatalog":
        """The catalog with what cannot be read as it is in the release in use: that it cannot be read does not say that it changed."""
        entries = {cve_id: entry.completed(used[cve_id]) if cve_id in used else entry for cve_id, entry in self.entries.items()}
        if any(gap.cve_id is None for gap in self.gaps):  # it may be the entry of any CVE that seems to be gone
            entries = {**used, **entries}
        new_first = sorted(self.gaps, key=lambda gap: gap.cve_id in used)
        return replace(self, entries=entries, unreadable=_named(new_first))


@dataclass(frozen=True)
class Gap:
    """What of an entry cannot be read, in words; `cve_id` is None if its CVE cannot be read."""

    text: str
    cve_id: str | None


def _named(gaps: Sequence[Gap]) -> tuple[str, ...]:
    more = len(gaps) - MOST_NAMED
    return (*(gap.text for gap in gaps[:MOST_NAMED]), *([f"and {more:,} more"] if more > 0 else []))


def _as_written(value: Any) -> Any:
    """The text of a date or time; raises ValueError for a number, which would be read as seconds since 1970."""
    if not isinstance(value, str) or not WRITTEN_DATE.match(value.strip()):
        raise ValueError("a date is text that begins with YYYY-MM-DD")
    return value.strip()


def _as_day(value: Any) -> Any:
    return _as_written(value)[: len("2026-08-21")]


def _possible(day: date, info: "ValidationInfo[date]") -> date:
    if not FIRST_LISTING <= day <= info.context + LATER:
        raise ValueError("KEV added nothing on that day")
    return day


def _triage(value: Any) -> bool | None:
    word = "" if value is None else str(value).strip().lower()
    if word not in TRIAGE:
        raise ValueError("neither Yes nor No")
    return TRIAGE[word]


Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
PublishedDate = Annotated[date, BeforeValidator(_as_day)]
MEMBERS = {
    "dateAdded": "date_added",
    "vendorProject": "vendor",
    "product": "product",
    "dueDate": "due_date",
    "requiredAction": "required_action",
    "knownRansomwareCampaignUse": "ransomware",
    "vulnerabilityName": "name",
    "shortDescription": "description",
    "notes": "links",
    "forensicTriage": "forensic_triage",
}
"""The members that need not be readable, and what is kept of each."""
ENTRY_MEMBERS = frozenset({*MEMBERS, "cveID", "cwes"})
DIRECTIVES = frozenset({"19-02", "22-01", "23-02", "25-03", "26-03", "26-04"})
"""Those that releases cite. Only 22-01, which was revoked, and 26-04 say by when an entry of KEV is to be fixed."""
DIRECTIVE = re.compile(r"\b(?:BOD|ED|Directive(?: \([BODE]+\))?)[ \u00a0]([0-9]{2}-[0-9]{2})\b")
AS_BEFORE = "as the entry was before, else unknown"
TRIAGE = {"yes": True, "no": False, "": None, "unknown": None}


class Published(BaseModel):
    """Base of what is read: names as CISA spells them, blanks stripped, members that are not needed ignored."""

    model_config = ConfigDict(alias_generator=AliasGenerator(validation_alias=to_camel), str_strip_whitespace=True)


class PublishedEntry(Published):
    cve_id: Annotated[str, StringConstraints(pattern=PATTERN, to_upper=True), Field(validation_alias="cveID")]
    date_added: Annotated[PublishedDate, AfterValidator(_possible)] | None = None
    vendor_project: str = ""
    product: str = ""
    due_date: Annotated[PublishedDate | None, BeforeValidator(lambda text: text or None)] = None
    required_action: str = ""
    vulnerability_name: Text = ""
    short_description: Text = ""
    notes: Text = ""
    forensic_triage: Annotated[bool | None, BeforeValidator(_triage)] = None
    known_ransomware_campaign_use: Annotated[str, StringConstraints(pattern="^(?i:known|unknown)$")] = "Unknown"


class PublishedCatalog(Published, extra="allow"):
    title: Any = None
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
    released = read.date_released.date()
    results = [_read(place, published, released) for place, published in enumerate(read.vulnerabilities)]
    gaps = [gap for _, gap in results if gap]
    nameless = [gap for gap in gaps if gap.cve_id is None]
    if len(nameless) > MOST_NAMELESS:
        counted = f"of {len(nameless):,} of {len(results):,} entries the CVE cannot be read, where {MOST_NAMELESS} are accepted"
        raise FeedRefused(FEED, f"{counted}; the first: {nameless[0].text}", public=counted)
    newest_first = sorted(
        (entry for entry, _ in results if entry), key=lambda entry: (entry.date_added is None, entry.listed_by), reverse=True
    )
    if not newest_first:
        raise FeedRefused(FEED, "a catalog without any entries")
    times = Counter(entry.cve_id for entry in newest_first)
    gaps += [Gap(f"{cve_id}: {count} entries have this cveID", cve_id) for cve_id, count in times.items() if count > 1]
    entries = {entry.cve_id: entry for entry in newest_first}
    return KevCatalog(read.catalog_version, read.date_released, entries, _named(gaps), gaps, _words(read, (entry for entry, _ in results)))


def _words(read: PublishedCatalog, entries: Iterable[KevEntry | None]) -> Words:
    """The words of a release that are not known; of dates and identifiers the forms."""
    words = Words()
    words.members(read.model_extra or {}, frozenset(), of="the catalog")
    for members, entry in zip(read.vulnerabilities, entries, strict=True):
        if not isinstance(members, dict):
            words.add("kind of entry", type(members).__name__, taken_as="left out")
            continue
        words.members(members, ENTRY_MEMBERS, of="entries")
        cited = DIRECTIVE.findall(str(members.get("requiredAction")))
        words.values(cited, DIRECTIVES, of="directives", taken_as="named as it is; deadlines are those of BOD 26-04")
        if entry is None:
            words.add("form of cveID", form_of(members.get("cveID")), taken_as="an entry without a CVE: those in use stay")
        for name in entry.unreadable if entry else ():
            value = members.get(name)
            if name in ("knownRansomwareCampaignUse", "forensicTriage"):
                words.add(f"value of {name}", value, taken_as=AS_BEFORE)
            elif name in ("dateAdded", "dueDate") and value and not WRITTEN_DATE.match(str(value).strip()):
                words.add(f"form of {name}", form_of(value), taken_as=AS_BEFORE)
    return words


def _read(place: int, published: Any, released: date) -> tuple[KevEntry | None, Gap | None]:
    """An entry without the members that cannot be read, and what these are; no entry if its CVE cannot be read."""
    members = published if isinstance(published, dict) else {}
    if (cve_id := _cve_of(members)) is None:
        return None, Gap(f"entry {place + 1}: {_seen(members, 'cveID')}", None)
    rest, odd = _readable(members | {"cveID": cve_id}, released)
    entry = KevEntry(
        cve_id,
        rest.vendor_project,
        rest.product,
        rest.date_added,
        rest.due_date,
        ransomware=None if "knownRansomwareCampaignUse" in odd else rest.known_ransomware_campaign_use.lower() == "known",
        end_of_life=says_end_of_life(rest.required_action),
        name=rest.vulnerability_name[:LONGEST_TEXT],
        description=rest.short_description[:LONGEST_TEXT],
        required_action=rest.required_action[:LONGEST_TEXT],
        forensic_triage=rest.forensic_triage,
        links=tuple(dict.fromkeys(link for link in LINK.findall(rest.notes) if len(link) <= LONGEST_LINK))[:MOST_LINKS],
        first_release=None if rest.date_added else released,
        unreadable=odd,
    )
    return entry, Gap(f"{cve_id}: {', '.join(_seen(members, name) for name in odd)}", cve_id) if odd else None


def _cve_of(members: Mapping[str, Any]) -> str | None:
    if oddly_spelled := ODDLY_SPELLED.fullmatch(str(members.get("cveID"))):
        return canonical("CVE-{}-{}".format(*oddly_spelled.groups()))
    linked = {canonical(cve_id) for cve_id in NVD_LINK.findall(str(members.get("notes")))}
    return linked.pop() if len(linked) == 1 else None


def _readable(members: Mapping[str, Any], released: date) -> tuple[PublishedEntry, tuple[str, ...]]:
    """What can be read of an entry, and the members that cannot."""
    odd = dict.fromkeys([] if members.get("dateAdded") else ["dateAdded"])
    try:
        return PublishedEntry.model_validate(members, context=released), tuple(odd)
    except ValidationError as error:
        odd |= dict.fromkeys(str(fault["loc"][0]) for fault in error.errors(include_url=False))
    rest = {name: value for name, value in members.items() if name not in odd}
    return PublishedEntry.model_validate(rest, context=released), tuple(odd)


def _seen(members: Mapping[str, Any], name: str) -> str:
    return f"{name} {members[name]!r:.60}" if name in members else f"no {name}"
