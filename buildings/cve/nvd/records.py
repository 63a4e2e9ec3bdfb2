"""NVD's records of all CVEs, packed: 16 to a compressed block, about 40 bytes each, found by number and read one at a time. Pure.

A page holds the records of 1,024 consecutive numbers in 64 blocks. A block is raw deflate with a preset dictionary of
what records have in common; its lines are records as JSON arrays, each after a character for its place in the block.
After the blocks a page has the outlines of its records.
"""

import json
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal

import orjson

from buildings.cve.arguments import number_of, spelled
from buildings.cve.feeds.issue import Issue
from buildings.cve.nvd.outlines import Outline, Outlines, merged_outlines, outline_of, outline_of_values
from buildings.cve.ranking.enrichment import CHAIN, Affected, NvdRecord, Rating, Ssvc

NvdRecordState = Literal["read", "not_read", "absent"]

PAGE_BITS, BLOCK_BITS = 10, 4
SLOTS = 1 << PAGE_BITS
BLOCKS = 1 << (PAGE_BITS - BLOCK_BITS)
HEAD = struct.Struct(f"<{BLOCKS}H")
PLACES = b"0123456789abcdef"
RAW_DEFLATE = -zlib.MAX_WBITS
LONGEST_LINE = 4_000
"""The most bytes of a record, so that the 65,535 that a block may have are enough for 16 which cannot be compressed."""

DICTIONARY = (
    b'["Awaiting Analysis",["Undergoing Analysis",["Received",["Rejected",["Deferred",["Modified",["Analyzed",7'
    b'"http://www.securityfocus.com/bid/","http://secunia.com/advisories/","https://exchange.xforce.ibmcloud.com/vulnerabilities/"'
    b'"https://www.oracle.com/security-alerts/cpu","https://portal.msrc.microsoft.com/en-US/security-guidance/advisory/CVE-'
    b'"https://support.apple.com/","https://source.android.com/security/bulletin/","https://tools.cisco.com/security/center/'
    b'content/CiscoSecurityAdvisory/cisco-sa-","https://helpx.adobe.com/security/products/","https://www.exploit-db.com/exploits/"'
    b'"https://www.wordfence.com/threat-intel/vulnerabilities/id/","https://patchstack.com/database/vulnerability/wordpress-plugin-'
    b'"https://git.kernel.org/stable/c/","https://vuldb.com/?id.","https://github.com//security/advisories/GHSA-"/issues/"/commit/'
    b'["linux","linux kernel",">=4. <5.10.>=5.16 <6.1.>=6.2 <6.6.>=6.7 <6.12.],["microsoft","windows server 20","-"],["google","android"'
    b'["apple","macos","*"],["cisco","ios"],["oracle"],["adobe"],["ibm"],["debian","debian linux","],["fedoraproject","fedora","'
    b'["CWE-125","CWE-787","CWE-476","CWE-416","CWE-20","CWE-200","CWE-22","CWE-352","CWE-78","CWE-94","CWE-862","CWE-119","CWE-89",'
    b'"CWE-79"],["none","no","partial"],["poc","yes","total"]'
    b'[["4.0",5.3,"CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N","MEDIUM",1],'
    b'["2.0",4.3,"AV:N/AC:M/Au:N/C:N/I:P/A:N","MEDIUM",0],["2.0",7.5,"AV:N/AC:L/Au:N/C:P/I:P/A:P","HIGH",0]],'
    b'[["3.1",7.5,"CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H","HIGH",0],["3.1",5.4,"CVSS:3.1/AV:N/AC:L/PR:L/UI:R/S:C/C:L/I:L/A:N",'
    b'"MEDIUM",1],["3.1",7.8,"CVSS:3.1/AV:L/AC:L/PR:L/UI:N/S:U/C:H/I:H/A:H","HIGH",2],["3.1",9.8,"CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/'
    b'C:H/I:H/A:H","CRITICAL",0]],null,null,null,[],[],0,null]'
)
"""Stored blocks cannot be read with another dictionary: a change needs a migration that empties `nvd_page` and `nvd_state`."""


@dataclass(frozen=True)
class NvdRecords:
    """The records that were read so far: `entries` of `total`; `is_complete` once all of NVD's were read.

    With `as_of` a record that NVD changed after that day counts as not read.
    """

    pages: Mapping[int, bytes] = field(default_factory=dict)
    version: int = 0
    entries: int = 0
    total: int | None = None
    is_complete: bool = False
    issue: Issue | None = None
    as_of: date | None = None
    outlines: dict[int, Outlines] = field(default_factory=dict, compare=False, repr=False)
    """Of the pages that were asked for outlines, unpacked."""

    def find(self, cve_id: str) -> NvdRecord | None:
        """The record of a CVE; None when there is none, or it was not read."""
        number = number_of(cve_id)
        page = self.pages.get(number >> PAGE_BITS)
        line = _line(page, number) if page else None
        record = _record(cve_id, orjson.loads(line)) if line else None
        return None if record and self.as_of and record.modified > self.as_of else record

    def outline(self, number: int) -> Outline | None:
        """The outline of a CVE's record, by number, in a tenth of the time that the record takes; None when `find` returns None."""
        page = self.pages.get(number >> PAGE_BITS)
        if page is None:
            return None
        outlines = self._outlines_of(number >> PAGE_BITS, page) if self.as_of is None else None
        if outlines is None:
            record = self.find(spelled(number))
            return outline_of(record) if record else None
        return outlines.find(number % SLOTS)

    def _outlines_of(self, place: int, page: bytes) -> Outlines | None:
        """The outlines of a page, kept unpacked; None for pages that were stored without."""
        found = self.outlines.get(place)
        if found is None or found.page is not page:
            start = _end_of_blocks(page)
            if start == len(page):
                return None
            found = self.outlines[place] = Outlines.unpack(page, start)
        return found

    def state_of(self, record: NvdRecord | Outline | None) -> NvdRecordState:
        """What `find` says of a CVE: its record was read; it was not read yet; or NVD has none."""
        if record:
            return "read"
        return "absent" if self.is_complete and self.as_of is None else "not_read"

    def rejected(self) -> frozenset[int]:
        """The numbers of the CVEs that NVD calls rejected."""
        found = ((place << PAGE_BITS) + slot for place, page in self.pages.items() for slot in _unpacked_outlines(page).rejected())
        return frozenset(number for number in found if self.as_of is None or self.find(spelled(number)))

    def vendors(self) -> Iterator[tuple[int, str]]:
        """CVE numbers, each with the vendor that its record names first; records without products are left out."""
        names: dict[bytes, str] = {}  # there are few different ones
        for place, page in self.pages.items():
            for slot, vendor in _unpacked_outlines(page).vendors():
                name = names.get(vendor) or names.setdefault(vendor, vendor.decode())
                yield (place << PAGE_BITS) + slot, name

    def products(self, numbers: Iterable[int]) -> Iterator[tuple[int, list[tuple[str, str]]]]:
        """Each of the CVE numbers, with vendor and product of the vulnerable products that its record names, if it was read."""
        for number in numbers:
            page = self.pages.get(number >> PAGE_BITS)
            line = _line(page, number) if page else None
            yield number, [(vendor, product) for vendor, product, _ in orjson.loads(line)[0]] if line else []

    def at(self, day: date) -> "NvdRecords":
        """As far as these records show what NVD said on a past day."""
        return replace(self, as_of=day)


def packed(records: Iterable[NvdRecord], *, issue: Issue) -> NvdRecords:
    """All of a small NVD."""
    pages, entries = merged({}, records)
    return NvdRecords(pages=pages, entries=entries, total=entries, is_complete=True, issue=issue)


def page_numbers(records: Iterable[NvdRecord]) -> set[int]:
    """The pages that records belong to."""
    return {number_of(record.cve_id) >> PAGE_BITS for record in records}


def merged(pages: Mapping[int, bytes], records: Iterable[NvdRecord]) -> tuple[dict[int, bytes], int]:
    """The pages of these records, with them in place of older ones; and how many records were added.

    `pages` has what is stored of these pages.
    """
    by_page: dict[int, dict[int, dict[int, bytes]]] = defaultdict(lambda: defaultdict(dict))
    outlines: dict[int, dict[int, Outline]] = defaultdict(dict)
    for record, line in map(_bounded, records):
        number = number_of(record.cve_id)
        block = (number >> BLOCK_BITS) % BLOCKS
        by_page[number >> PAGE_BITS][block][number % len(PLACES)] = line
        outlines[number >> PAGE_BITS][number % SLOTS] = outline_of(record)
    result, added = {}, 0
    for place, blocks in by_page.items():
        page = pages.get(place)
        packed_blocks, more = _with_blocks(page, blocks)
        start = _end_of_blocks(page) if page else 0
        known = None if page is None else Outlines.unpack(page, start) if start < len(page) else _outlines_from_blocks(page)
        result[place] = packed_blocks + merged_outlines(known, outlines[place], slots=SLOTS)
        added += more
    return result, added


def _unpacked_outlines(page: bytes) -> Outlines:
    start = _end_of_blocks(page)
    return Outlines.unpack(page, start) if start < len(page) else _outlines_from_blocks(page)


def _outlines_from_blocks(page: bytes) -> Outlines:
    """The outlines of a page that was stored without."""
    found = {}
    for place, block in enumerate(_blocks(page)):
        for line in _inflated(block).split(b"\n"):
            if line:
                found[(place << BLOCK_BITS) + PLACES.index(line[0])] = outline_of_values(orjson.loads(line[1:]))
    return Outlines.unpack(merged_outlines(None, found, slots=SLOTS), 0)


def _with_blocks(page: bytes | None, changed: Mapping[int, Mapping[int, bytes]]) -> tuple[bytes, int]:
    blocks = _blocks(page) if page else [b""] * BLOCKS
    added = 0
    for place, lines in changed.items():
        known = {PLACES.index(line[0]): line[1:] for line in _inflated(blocks[place]).split(b"\n") if line}
        added += len(lines.keys() - known.keys())
        kept = {**known, **lines}
        blocks[place] = _deflated(b"\n".join(PLACES[slot : slot + 1] + kept[slot] for slot in sorted(kept)))
    return HEAD.pack(*map(len, blocks)) + b"".join(blocks), added


def _blocks(page: bytes) -> list[bytes]:
    blocks = []
    start = HEAD.size
    for length in HEAD.unpack_from(page):
        blocks.append(page[start : start + length])
        start += length
    return blocks


def _end_of_blocks(page: bytes) -> int:
    lengths: tuple[int, ...] = HEAD.unpack_from(page)
    return HEAD.size + sum(lengths)


def _line(page: bytes, number: int) -> bytes | None:
    lengths = HEAD.unpack_from(page)
    place = (number >> BLOCK_BITS) % BLOCKS
    start = HEAD.size + sum(lengths[:place])
    slot = PLACES[number % len(PLACES)]
    lines = b"\n" + _inflated(page[start : start + lengths[place]]) + b"\n"
    begin = lines.find(b"\n" + bytes((slot,)))
    return None if begin < 0 else lines[begin + 2 : lines.index(b"\n", begin + 1)]


def _deflated(content: bytes) -> bytes:
    stream = zlib.compressobj(wbits=RAW_DEFLATE, zdict=DICTIONARY)
    return stream.compress(content) + stream.flush()


def _inflated(block: bytes) -> bytes:
    return zlib.decompressobj(RAW_DEFLATE, zdict=DICTIONARY).decompress(block) if block else b""


def _bounded(record: NvdRecord) -> tuple[NvdRecord, bytes]:
    """The record with its line; one that is longer than any that was seen loses what makes it so."""
    line = _values(record)
    if len(line) <= LONGEST_LINE:
        return record, line
    short = replace(record, ratings=(), affected=(), fix_url=None, advisory_url=None, exploit_url=None)
    return short, _values(short)


def _values(record: NvdRecord) -> bytes:
    ratings = [(rating.version, rating.score, rating.vector, rating.severity, CHAIN.index(rating.source)) for rating in record.ratings]
    affected = [(one.vendor, one.product, one.versions) for one in record.affected]
    ssvc = (record.ssvc.exploitation, record.ssvc.automatable, record.ssvc.technical_impact) if record.ssvc else None
    values = (
        *(affected, record.status, record.modified.toordinal(), record.published.toordinal() if record.published else None, ratings),
        *(record.fix_url, record.advisory_url, record.exploit_url, record.cwes, record.affected_count, ssvc),
    )
    return json.dumps(values, separators=(",", ":")).encode()


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
