"""Reads records of OSV, one JSON object each: which CVEs the name of a record and its other names stand for. Pure.

`aliases` name the same vulnerability; `upstream`, of the notice of a distribution, those that it is about. `related` ones are others.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import orjson

from buildings.cve.arguments import canonical, number_of
from buildings.cve.feeds.errors import FeedRefused
from buildings.cve.feeds.vocabulary import Words

FEED = "OSV"
_MEMBERS = """
    schema_version id modified published withdrawn aliases upstream related summary details severity affected references credits
    database_specific
"""
MEMBERS = frozenset(_MEMBERS.split())
_SCHEMES = """
    A AIKIDO ALAS ALBA ALEA ALPINE ALSA ASB AZL BDSA BELL BIT CGA CLEANSTART CURL CVE DEBIAN DHI DLA DRUPAL DSA DTSA ECHO EEF ELA ELSA
    EUVD FREEBSD GCVE GHSA GO GSD HSEC JLSEC KUBE LBSEC LSN MAL MGASA MINI OESA OPENSUSE OSEC OSV PHSA PSF PUB PYSEC RHBA RHEA RHSA RLSA
    ROOT RSEC RUSTSEC RXSA SNYK SUSE TEMP UBUNTU USN V8 XRAY
"""
SCHEMES = frozenset(_SCHEMES.split())
"""The first parts of names that are known."""
NAME = re.compile(r"([A-Za-z][A-Za-z0-9]*)[-:][A-Za-z0-9._:~+-]{1,70}")
CVE_AT_END = re.compile(r"(?:^|[-_:])(CVE-[0-9]{4}-[0-9]{4,12})$", re.IGNORECASE)
"""Names that say their CVE themselves, such as DEBIAN-CVE-2024-3094: they need no record."""
SCHEMA = "1."
MOST_NAMES = 200
MOST_UNREADABLE, UNREADABLE_SHARE = 20, 0.01
LONGEST_LINE = 400
FIRST_YEAR = 1999
MOST_PAIRS = 2_000_000
"""Names of all records of an ecosystem: some 500 bytes of memory each. The largest has 60,000."""
OVERLAP = timedelta(days=2)
"""OSV shows records with a time of change that is some hours past: so far back a reading looks again."""


def address_of(url: str, ecosystem: str, file: str) -> str:
    return f"{url}/{quote(ecosystem)}/{quote(file, safe='')}"


def is_read(name: str) -> bool:
    """Whether the record of this name is of use: malicious packages have no CVE, and some names say theirs themselves."""
    return not name.startswith("MAL-") and not CVE_AT_END.search(name)


def cve_in(name: str) -> int | None:
    found = CVE_AT_END.search(name)
    cve_id = canonical(found[1]) if found else None
    return number_of(cve_id) if cve_id else None


@dataclass
class Records:
    """Records of one ecosystem: by name the time of the last change, and the CVEs of each of its names; `unreadable` are left out."""

    changed: dict[str, datetime] = field(default_factory=dict)
    pairs: dict[str, frozenset[tuple[str, int]]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    words: Words = field(default_factory=Words)
    count: int = 0

    def add(self, name: str, content: bytes | bytearray) -> None:
        """Read a record; `name` is that of its file."""
        try:
            record = orjson.loads(content)
            modified = instant(record["modified"])
            known, upstream = ([*_names(record.get(member))] for member in ("aliases", "upstream"))
            if record["id"] != name:
                raise ValueError("another id")
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            self.unreadable.append(f"{name} ({type(error).__name__} {error})"[:120])
            return
        self._watch(record, [name, *known, *upstream])
        cves, others = _divided([name, *known])
        pairs = {(other, number) for other in others for number in cves}
        pairs |= {(name.upper(), number) for number in _divided(upstream)[0]}
        self.changed[name] = modified
        self.pairs[name] = frozenset(sorted(pairs)[:MOST_NAMES])
        self.count += len(self.pairs[name])

    def _watch(self, record: dict[str, Any], names: list[str]) -> None:
        self.words.members(record, MEMBERS, of="records")
        for name in names:
            found = NAME.fullmatch(name)
            if found is None or found[1].upper() not in SCHEMES:
                self.words.add("scheme of names", found[1] if found else name, taken_as="a name like any other" if found else "left out")
        if not str(record.get("schema_version", SCHEMA)).startswith(SCHEMA):
            self.words.add("schema_version", record.get("schema_version"), taken_as="read as 1")

    @property
    def newest(self) -> datetime | None:
        return max(self.changed.values(), default=None)

    @property
    def entries(self) -> int:
        """How many records name a CVE."""
        return sum(1 for pairs in self.pairs.values() if pairs)

    def check(self, ecosystem: str) -> None:
        """Raise FeedRefused if too many records cannot be read."""
        count = len(self.unreadable)
        if count > MOST_UNREADABLE + UNREADABLE_SHARE * len(self.changed):
            raise FeedRefused(
                f"{FEED} {ecosystem}",
                f"{count:,} of {count + len(self.changed):,} records cannot be read; the first: {self.unreadable[0]}",
                public=f"{count:,} of its records cannot be read",
            )


def _names(value: Any) -> Iterator[str]:
    if value is None:
        return
    if not isinstance(value, list):
        raise TypeError("names that are no list")
    for name in value[:MOST_NAMES]:
        if not isinstance(name, str):
            raise TypeError("a name that is no text")
        yield name


def _divided(names: list[str]) -> tuple[list[int], list[str]]:
    """The numbers of the CVEs among these names, and the other names in upper case."""
    cves = [number_of(cve_id) for name in names if (cve_id := canonical(name))]
    return cves, [name.upper() for name in names if not canonical(name) and NAME.fullmatch(name)]


def instant(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.year < FIRST_YEAR:
        raise ValueError(f"a time of the year {moment.year}")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@dataclass
class ChangedNames:
    """The head of `modified_id.csv`, the newest change first: the records that changed since `until`, the rest is not downloaded.

    `too_many` is whether there are more than `most` of them. It is filled by `take`, which returns False when it needs no more.
    """

    feed: str
    until: datetime
    most: int
    names: dict[str, datetime] = field(default_factory=dict)
    too_many: bool = False
    _rest: bytes = b""

    def restart(self) -> None:
        self.names, self.too_many, self._rest = {}, False, b""

    def take(self, chunk: bytes) -> bool:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise self._refused(self._rest)
        return all(self._is_new(line) for line in lines) and not self.too_many

    def finish(self) -> None:
        if self._rest.strip():
            self._is_new(self._rest)

    def _is_new(self, line: bytes) -> bool:
        written, comma, name = line.decode("utf-8", "replace").strip().partition(",")
        try:
            modified = instant(written)
        except ValueError:
            raise self._refused(line) from None
        if not comma or not name:
            raise self._refused(line)
        if modified > self.until and is_read(name):
            self.names.setdefault(name, modified)
            self.too_many = len(self.names) > self.most
        return modified > self.until

    def _refused(self, line: bytes) -> FeedRefused:
        return FeedRefused(self.feed, f"modified_id.csv has the line {line[:60]!r} where a time and the name of a record belong")
