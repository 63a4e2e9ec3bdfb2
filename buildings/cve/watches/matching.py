"""Which CVEs fit a watch, and which of them are news to it. No clock, no network.

A CVE fits a watch if its score is at least the watch's least score and the watch names it: its identifier, a vendor or a product of
it. A watch that names nothing takes every CVE with that score. What fits is news once: a watch knows what it told of.
"""

import re
import zlib
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, filterfalse
from operator import sub

from pydantic import TypeAdapter
from sqlalchemy import Connection

from buildings.cve.arguments import Exposure, number_of, spelled
from buildings.cve.nvd.reading import lines_in, products_in
from buildings.cve.plain_names import plain_name
from buildings.cve.ranking.deadlines import urgency_of
from buildings.cve.ranking.edition import Edition, listing_days
from buildings.cve.ranking.formula import EPSS_POINTS, UNSCORED, factors_of, little_endian, row_of
from buildings.cve.ranking.results import DECIMALS, entry_of
from buildings.cve.watches.models import NewsEntry

IN_KEV = 25.0  # The lowest score of a CVE in KEV.
HIGHEST_OUTSIDE_KEV = IN_KEV - 10**-DECIMALS
"""The highest score outside KEV, 25 times EPSS: one that is rounded to 25 still counts as lower."""
MOST_NEWS = 1_000  # CVEs in the news of one watch about one list. What else fits is news with the next list.
MARK = b"\x01"  # Begins the CVEs that a watch knows, as they are stored. A block without it has no digest.
DIGEST_SIZE = 16
NO_DIGEST = bytes(DIGEST_SIZE)
ONE_COLON = re.compile("(?<!:):(?!:)")
EVERY_CVE = ""  # The key of all CVEs, for a watch that names none.


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """What a watch is about. A product may be written as vendor:product."""

    vendors: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    cve_ids: tuple[str, ...] = ()
    least_score: float = IN_KEV
    exposed: Exposure = "unknown"

    @property
    def names_cves(self) -> bool:
        """Whether it names vendors, products or CVEs; otherwise every CVE with the score fits."""
        return bool(self.vendors or self.products or self.cve_ids)


CRITERIA: TypeAdapter[Criteria] = TypeAdapter(Criteria)


@lru_cache(maxsize=4096)
def product_name(name: str) -> str:
    """A product's name as it is compared, which may be written as vendor:product; Perl's names, such as Net::DNS, have no vendor."""
    return ":".join(map(plain_name, ONE_COLON.split(name, maxsplit=1)))


def pack_known(numbers: Collection[int], digest: bytes) -> bytes:
    """The CVEs that a watch knows, as one compressed block: the distances between them, about two bytes each, after the digest."""
    return MARK + digest + _compressed(numbers)


def unpack_known(block: bytes) -> set[int]:
    found: set[int] = set()
    packed = block[_end_of_digest(block) :]
    while packed:
        stream = zlib.decompressobj()
        distances = array("q")
        distances.frombytes(stream.decompress(packed))
        found.update(accumulate(little_endian(distances)))
        packed = stream.unused_data
    return found


def _compressed(numbers: Collection[int]) -> bytes:
    ordered = sorted(numbers)
    distances = array("q", map(sub, ordered, [0, *ordered]))
    return zlib.compress(little_endian(distances).tobytes(), 1)


def known_digest(block: bytes) -> bytes:
    return block[len(MARK) : _end_of_digest(block)] or NO_DIGEST


def with_digest(block: bytes, digest: bytes, more: Collection[int] = ()) -> bytes:
    """The same CVEs and `more` with another digest. These are compressed apart, so that thousands are not packed again for one."""
    return MARK + digest + block[_end_of_digest(block) :] + (_compressed(more) if more else b"")


def _end_of_digest(block: bytes) -> int:
    return len(MARK) + DIGEST_SIZE if block.startswith(MARK) else 0


def scores_of(edition: Edition, least: float) -> dict[int, float]:
    ranked = edition.ranked
    lowest = (least - 10**-DECIMALS) / EPSS_POINTS
    rows = zip(ranked.numbers, ranked.epss, ranked.ranks, strict=True)
    scored = ((number, EPSS_POINTS * epss) for number, epss, rank in rows if epss >= lowest and rank)
    found = {number: min(score, HIGHEST_OUTSIDE_KEV) for number, score in scored}
    for number, added in listing_days(edition.facts.kev).items():
        row = row_of(number, ranked.numbers)
        if row is not None and ranked.ranks[row]:
            epss = ranked.epss[row]
            found[number] = factors_of(epss=None if epss == UNSCORED else epss, added=added, day=edition.day).score
    rounded = {number: round(score, DECIMALS) for number, score in found.items()}
    return {number: score for number, score in rounded.items() if score >= least}


class Ranking:
    """CVE numbers by the keys of names, the highest score first, so that those from a score on are the beginning of a list."""

    def __init__(self, scores: Mapping[int, float], named: Mapping[str, Collection[int]]) -> None:
        self._scores = scores
        self._named = named
        self._by_id = {spelled(number): number for number in scores}
        self._lists: dict[str, tuple[Sequence[int], Sequence[float]]] = {}
        self._digests: dict[tuple[str, int], bytes] = {}

    def fitting(self, keys: Iterable[str], criteria: Criteria, *, but: Container[int] = ()) -> set[int]:
        found = set(filterfalse(but.__contains__, self._watched(criteria)))
        for key in keys:
            numbers, count = self._reaching(key, criteria.least_score)
            found.update(filterfalse(but.__contains__, numbers[:count]))
        return found

    def digest(self, keys: Iterable[str], criteria: Criteria) -> bytes:
        """A digest of the CVEs that fit: two are equal only if each key has the same CVEs."""
        whole = blake2b(_digest(self._watched(criteria)), digest_size=DIGEST_SIZE)
        for key in keys:
            numbers, count = self._reaching(key, criteria.least_score)
            found = self._digests.get((key, count))
            if found is None:
                found = self._digests[key, count] = _digest(numbers[:count])
            whole.update(found)
        return whole.digest()

    def _watched(self, criteria: Criteria) -> list[int]:
        numbers = [number for cve_id in criteria.cve_ids if (number := self._by_id.get(cve_id)) is not None]
        return [number for number in numbers if self._scores[number] >= criteria.least_score]

    def _reaching(self, key: str, least: float) -> tuple[Sequence[int], int]:
        found = self._lists.get(key)
        if found is None:
            named = self._scores if key == EVERY_CVE else (number for number in self._named.get(key, ()) if number in self._scores)
            ordered = sorted(named, key=self._scores.__getitem__, reverse=True)
            found = self._lists[key] = ordered, [-self._scores[number] for number in ordered]
        return found[0], bisect_right(found[1], -least)


def _digest(numbers: Iterable[int]) -> bytes:
    return blake2b(little_endian(array("q", sorted(numbers))).tobytes(), digest_size=DIGEST_SIZE).digest()


class Matcher:
    """Finds the news of watches in an edition; `last` is the edition that was served before it, None for the first.

    Names are read for the CVEs that reach the lowest score of the watches only: that of all would take seconds. For a watch that
    fits what it fitted when it was last matched, the CVEs that it knows are not read: its digest is the same.
    """

    def __init__(self, edition: Edition, last: Edition | None) -> None:
        self.edition = edition
        self._last = last
        self._least: float | None = None
        self._named: Mapping[str, Collection[int]] = {}
        self._now = self._before = Ranking({}, {})
        self._entries: dict[tuple[int, Exposure], NewsEntry] = {}

    def prepare(self, connection: Connection, least: float) -> None:
        """Look up what watches with this least score, or a higher one, need; costs nothing if that was done."""
        if self._least is not None and self._least <= least:
            return
        self._least = least
        scores = scores_of(self.edition, least)
        earlier = scores_of(self._last, least) if self._last else scores
        self._named = self._names(connection, scores.keys() | earlier.keys())
        self._now = Ranking(scores, self._named)
        self._before = Ranking(earlier, self._named)

    def digest(self, criteria: Criteria) -> bytes:
        return self._now.digest(_keys(criteria), criteria)

    def news(self, criteria: Criteria, known: set[int], *, needs_baseline: bool) -> tuple[list[int], bool]:
        """The CVEs that newly fit, the first rank first, and at most MOST_NEWS; `known` gains them. True if there are no more.

        With `needs_baseline` it first gains what fits the last list, with the names of today: that is no news. In the very first
        list nothing is.
        """
        keys = _keys(criteria)
        if needs_baseline:
            known |= self._before.fitting(keys, criteria)
        new = self._now.fitting(keys, criteria, but=known)
        chosen = sorted(new, key=self._rank)[:MOST_NEWS]
        known.update(chosen)
        return chosen, len(chosen) == len(new)

    def entries(self, connection: Connection, numbers: Collection[int], criteria: Criteria) -> Iterator[NewsEntry]:
        missing = [number for number in numbers if number not in self.edition.nvd.lines]
        self.edition = replace(self.edition, nvd=self.edition.nvd.with_lines(lines_in(connection, missing)))
        vendors = [(f"vendor {name}", key) for name, key in zip(criteria.vendors, _vendor_keys(criteria), strict=True)]
        products = [(f"product {name}", key) for name, key in zip(criteria.products, _product_keys(criteria), strict=True)]
        for number in numbers:
            named = [name for name, key in (*vendors, *products) if number in self._named.get(key, ())]
            watched = ["cve_ids"] if spelled(number) in criteria.cve_ids else []
            yield self._entry(number, criteria.exposed).model_copy(update={"fits": (*watched, *named)})

    def _entry(self, number: int, exposed: Exposure) -> NewsEntry:
        if (entry := self._entries.get((number, exposed))) is None:
            cve_id = spelled(number)
            cve = self.edition.ranked.find(cve_id)
            assert cve is not None, "only ranked CVEs have scores"
            whole = entry_of(self.edition, cve_id, cve)
            listing, outline = self.edition.facts.kev.get(cve_id), self.edition.nvd.outline(number)
            ssvc = outline.ssvc if outline else None
            urgency = urgency_of(listing, ssvc, epss=cve.epss, exposed=exposed, today=self.edition.day)
            own = {name: getattr(urgency, name) for name in URGENCY_MEMBERS}
            entry = NewsEntry(fits=(), **own, **{name: getattr(whole, name) for name in NEWS_MEMBERS})
            self._entries[number, exposed] = entry
        return entry

    def _rank(self, number: int) -> int:
        row = row_of(number, self.edition.ranked.numbers)
        assert row is not None, "only ranked CVEs have scores"
        return self.edition.ranked.ranks[row]

    def _names(self, connection: Connection, numbers: Collection[int]) -> Mapping[str, Collection[int]]:
        found: dict[str, set[int]] = defaultdict(set)
        plain: dict[str, str] = {}
        listed = ((number_of(one.cve_id), one.vendor, one.product) for one in self.edition.facts.kev.values())
        for number, vendor, product in (*products_in(connection, numbers), *(one for one in listed if one[0] in numbers)):
            one = plain.get(vendor) or plain.setdefault(vendor, plain_name(vendor))
            other = plain.get(product) or plain.setdefault(product, plain_name(product))
            for key in (f"v {one}", f"p {other}", f"p {one}:{other}"):
                found[key].add(number)
        return found


URGENCY_MEMBERS = ("when", "when_if_exposed", "deadlines")
NEWS_MEMBERS = tuple(name for name in NewsEntry.model_fields if name not in ("fits", *URGENCY_MEMBERS))


def _keys(criteria: Criteria) -> list[str]:
    return [*_vendor_keys(criteria), *_product_keys(criteria)] if criteria.names_cves else [EVERY_CVE]


def _vendor_keys(criteria: Criteria) -> list[str]:
    return [f"v {plain_name(name)}" for name in criteria.vendors]


def _product_keys(criteria: Criteria) -> list[str]:
    return [f"p {product_name(name)}" for name in criteria.products]
