"""What NVD says that each CVE is: the descriptions of 64 consecutive numbers in one compressed block, read when one is shown. Pure.

They are stored apart from the records, which each process holds in memory: all of them are ten times as large.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping

import orjson

from buildings.cve.arguments import number_of
from buildings.cve.ranking.enrichment import NvdRecord

BLOCK_BITS = 6


def block_of(cve_id: str) -> int:
    return number_of(cve_id) >> BLOCK_BITS


def with_descriptions(blocks: Mapping[int, bytes], records: Iterable[NvdRecord]) -> dict[int, bytes]:
    """The blocks of these records, with their descriptions in place of older ones; `blocks` has what is stored of them."""
    changed: dict[int, dict[str, str]] = defaultdict(dict)
    for record in records:
        changed[block_of(record.cve_id)][record.cve_id] = record.description
    return {block: zlib.compress(orjson.dumps({**_unpacked(blocks.get(block)), **new})) for block, new in changed.items()}


def find_description(block: bytes | None, cve_id: str) -> str | None:
    """The description of a CVE; None if its record was not read, or has none."""
    return _unpacked(block).get(cve_id) or None


def _unpacked(block: bytes | None) -> dict[str, str]:
    found: dict[str, str] = orjson.loads(zlib.decompress(block)) if block else {}
    return found
