"""Outlines of NVD's records: of each what a verdict on many CVEs shows, a line per CVE, stored at the end of its page. Pure."""

import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple, get_args

from buildings.cve.ranking.enrichment import REJECTED_STATUS, NvdRecord, PatchStatus, Severity, Ssvc, patch_of

SEVERITIES: Sequence[Severity] = get_args(Severity)
PATCHES: Sequence[PatchStatus] = ("unknown", "vendor_advisory", "fix_reference")
FIRST_CODE = 65
"""A line begins with a letter for severity and patch, or the one for rejected records, then vendor and product follow."""
REJECTED = b"Z"
BETWEEN = "\x1f"
BREAKS = str.maketrans("\n\r\x1f", "   ")
RAW_DEFLATE = -zlib.MAX_WBITS
SEVERITY, SOURCE = 3, itemgetter(4)
"""Where a stored rating has its severity, and its source as a place in CHAIN."""


class Outline(NamedTuple):
    """Of a record what a verdict on many CVEs shows; `patch` is what NVD says of one; of a rejected record it shows nothing else."""

    severity: Severity = "UNKNOWN"
    patch: PatchStatus = "unknown"
    vendor: str | None = None
    product: str | None = None
    is_rejected: bool = False
    ssvc: Ssvc | None = None


@dataclass(frozen=True)
class Outlines:
    """The outlines of a page, unpacked: one text, and where each line ends."""

    page: bytes
    text: bytes
    ends: "array[int]"

    @classmethod
    def unpack(cls, page: bytes, start: int) -> "Outlines":
        """Those at the end of a page, from `start` on."""
        text = zlib.decompress(page[start:], RAW_DEFLATE)
        return cls(page, text, array("I", accumulate(len(line) + 1 for line in text.split(b"\n"))))

    def find(self, slot: int) -> Outline | None:
        """The outline in a place of the page; None if there is no record."""
        line = self.text[self.ends[slot - 1] if slot else 0 : self.ends[slot] - 1]
        if not line:
            return None
        if line == REJECTED:
            return Outline(is_rejected=True)
        severity, patch = divmod(line[0] - FIRST_CODE, len(PATCHES))
        vendor, product, *points = (name or None for name in line[1:].decode().split(BETWEEN))
        return Outline(SEVERITIES[severity], PATCHES[patch], vendor, product, ssvc=Ssvc(*points) if any(points) else None)

    def rejected(self) -> Iterator[int]:
        return (slot for slot, line in enumerate(self.text.split(b"\n")) if line == REJECTED)

    def vendors(self) -> Iterator[tuple[int, bytes]]:
        """The places of records that name a product, each with its vendor in UTF-8."""
        between = BETWEEN.encode()
        for slot, line in enumerate(self.text.split(b"\n")):
            if len(line) > 1 and (vendor := line[1:].partition(between)[0]):
                yield slot, vendor


def outline_of(record: NvdRecord) -> Outline:
    if record.is_rejected:
        return Outline(is_rejected=True)
    rating = record.rating
    status = patch_of(record, cve_id=record.cve_id, end_of_life=None).status
    return Outline(rating.severity if rating else "UNKNOWN", status, record.vendor, record.product, ssvc=record.ssvc)


def outline_of_values(values: Sequence[Any]) -> Outline:
    """The outline of a record as a page stores it."""
    affected, status, _, _, ratings, fix, advisory, *_, ssvc = values
    if status == REJECTED_STATUS:
        return Outline(is_rejected=True)
    severity: Severity = min(ratings, key=SOURCE)[SEVERITY] if ratings else "UNKNOWN"
    vendor, product = affected[0][:2] if affected else (None, None)
    patch: PatchStatus = "fix_reference" if fix else "vendor_advisory" if advisory else "unknown"
    return Outline(severity, patch, vendor, product, ssvc=Ssvc(*ssvc) if ssvc else None)


def merged_outlines(known: Outlines | None, changed: Mapping[int, Outline], *, slots: int) -> bytes:
    """The end of a page: the outlines that are known, with those that changed in their places."""
    lines = known.text.split(b"\n") if known else [b""] * slots
    for slot, outline in changed.items():
        code = FIRST_CODE + len(PATCHES) * SEVERITIES.index(outline.severity) + PATCHES.index(outline.patch)
        points = outline.ssvc or Ssvc(None, None, None)
        said = (outline.vendor, outline.product, points.exploitation, points.automatable, points.technical_impact)
        names = BETWEEN.join((name or "").translate(BREAKS) for name in said)
        lines[slot] = REJECTED if outline.is_rejected else f"{chr(code)}{names}".encode()
    stream = zlib.compressobj(wbits=RAW_DEFLATE)
    return stream.compress(b"\n".join(lines)) + stream.flush()
