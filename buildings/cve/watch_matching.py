"""Which CVEs fit a watch, and which of them are news to it. No clock, no network, no database.

A CVE fits a watch if its score is at least the watch's least score and the watch names it: its identifier, a vendor or a product of
it. A watch that names nothing takes every CVE with that score. What fits is news once: a watch knows what it told of.
"""

import unicodedata
import zlib
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from pydantic import TypeAdapter

from buildings.cve.arguments import number_of, spelled
from buildings.cve.edition import Edition, listing_days
from buildings.cve.ranking import EPSS_POINTS, UNSCORED, factors_of, little_endian, row_of
from buildings.cve.results import DECIMALS, entry_of
from buildings.cve.watch_models import NewsEntry

IN_KEV = 25.0
"""The lowest score of a CVE in KEV. Without KEV the score is 25 times EPSS, which is always below 1."""
MOST_NEWS = 1_000
"""CVEs in the news of one watch about one list. What else fits is news with the next list."""


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """What a watch is about. A product may be written as vendor:product."""

    vendors: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    cve_ids: tuple[str, ...] = ()
    least_score: float = IN_KEV

    @property
    def names_cves(self) -> bool:
        """Whether it names vendors, products or CVEs; otherwise every CVE with the score fits."""
        return bool(self.vendors or self.products or self.cve_ids)


CRITERIA: TypeAdapter[Criteria] = TypeAdapter(Criteria)


def plain_name(name: str) -> str:
    """A vendor's or product's name as it is compared: in lower case, with single blanks for blanks and underscores."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().replace("_", " ").split())


def pack_numbers(numbers: Collection[int]) -> bytes:
    """CVE numbers as one compressed block: the distances between them, about two bytes each."""
    ordered = sorted(numbers)
    distances = array("q", (after - before for before, after in zip([0, *ordered], ordered, strict=False)))
    return zlib.compress(little_endian(distances).tobytes(), 6)


def unpack_numbers(block: bytes) -> set[int]:
    """The CVE numbers in a block that `pack_numbers` returned; none in an empty one."""
    distances = array("q")
    distances.frombytes(zlib.decompress(block) if block else b"")
    return set(accumulate(little_endian(distances)))


def scores_of(edition: Edition, least: float) -> dict[int, float]:
    """The scores of an edition's CVEs that have at least this one, by CVE number, rounded as answers show them."""
    ranked = edition.ranked
    lowest = (least - 10**-DECIMALS) / EPSS_POINTS
    found = {number: EPSS_POINTS * epss for number, epss in zip(ranked.numbers, ranked.epss, strict=True) if epss >= lowest}
    for number, added in listing_days(edition.facts.kev).items():
        row = row_of(number, ranked.numbers)
        if row is not None:
            epss = ranked.epss[row]
            found[number] = factors_of(epss=None if epss == UNSCORED else epss, added=added, day=edition.day).score
    rounded = {number: round(score, DECIMALS) for number, score in found.items()}
    return {number: score for number, score in rounded.items() if score >= least}


class Matcher:
    """Finds the news of watches in an edition; `last` is the edition that was served before it, None for the first.

    Names are read for the CVEs that reach the lowest score of the watches only: that of all would take seconds.
    """

    def __init__(self, edition: Edition, last: Edition | None) -> None:
        self.edition = edition
        self._last = last
        self._least: float | None = None
        self._scores: Mapping[int, float] = {}
        self._earlier: Mapping[int, float] = {}
        self._named: Mapping[str, Collection[int]] = {}
        self._entries: dict[int, NewsEntry] = {}

    def prepare(self, least: float) -> None:
        """Look up what watches with this least score, or a higher one, need; costs nothing if that was done."""
        if self._least is not None and self._least <= least:
            return
        self._least = least
        self._scores = scores_of(self.edition, least)
        self._earlier = scores_of(self._last, least) if self._last else self._scores
        self._named = self._names(self._scores.keys() | self._earlier.keys())

    def news(self, criteria: Criteria, known: set[int], *, needs_baseline: bool) -> list[int]:
        """The CVEs that newly fit, the first rank first, and at most MOST_NEWS; `known` gains them.

        With `needs_baseline` it first gains what fits the last list, with the names of today: that is no news. In the very first
        list nothing is.
        """
        self.prepare(criteria.least_score)
        if needs_baseline:
            known |= self._fitting(criteria, self._earlier)
        new = self._fitting(criteria, self._scores) - known
        chosen = sorted(new, key=self._rank)[:MOST_NEWS]
        known.update(chosen)
        return chosen

    def entry(self, number: int, criteria: Criteria) -> NewsEntry:
        """A CVE as news show it, with what of the watch it fits."""
        if (entry := self._entries.get(number)) is None:
            cve_id = spelled(number)
            cve = self.edition.ranked.find(cve_id)
            assert cve is not None, "only ranked CVEs have scores"
            whole = entry_of(self.edition, cve_id, cve)
            entry = self._entries[number] = NewsEntry(fits=(), **{name: getattr(whole, name) for name in NEWS_MEMBERS})
        return entry.model_copy(update={"fits": self._reasons(number, criteria)})

    def _fitting(self, criteria: Criteria, scores: Mapping[int, float]) -> set[int]:
        least = criteria.least_score
        if not criteria.names_cves:
            return {number for number, score in scores.items() if score >= least}
        named = {number_of(cve_id) for cve_id in criteria.cve_ids}
        for key in (*_vendor_keys(criteria), *_product_keys(criteria)):
            named.update(self._named.get(key, ()))
        return {number for number in named if scores.get(number, 0.0) >= least}

    def _reasons(self, number: int, criteria: Criteria) -> tuple[str, ...]:
        vendors = [f"vendor {name}" for name, key in zip(criteria.vendors, _vendor_keys(criteria), strict=True) if self._has(key, number)]
        products = [
            f"product {name}" for name, key in zip(criteria.products, _product_keys(criteria), strict=True) if self._has(key, number)
        ]
        return (*(["cve_ids"] if spelled(number) in criteria.cve_ids else []), *vendors, *products)

    def _has(self, key: str, number: int) -> bool:
        return number in self._named.get(key, ())

    def _rank(self, number: int) -> int:
        row = row_of(number, self.edition.ranked.numbers)
        assert row is not None, "only ranked CVEs have scores"
        return self.edition.ranked.ranks[row]

    def _names(self, numbers: Iterable[int]) -> Mapping[str, Collection[int]]:
        """CVE numbers by the keys of the vendors and products that KEV or NVD names for them."""
        found: dict[str, set[int]] = defaultdict(set)
        plain: dict[str, str] = {}
        for number, names in self.edition.nvd.products(sorted(numbers)):
            listing = self.edition.facts.kev.get(spelled(number))
            for vendor, product in {*names, *([(listing.vendor, listing.product)] if listing else [])}:
                one = plain.get(vendor) or plain.setdefault(vendor, plain_name(vendor))
                other = plain.get(product) or plain.setdefault(product, plain_name(product))
                for key in (f"v {one}", f"p {other}", f"p {one}:{other}"):
                    found[key].add(number)
        return found


NEWS_MEMBERS = tuple(name for name in NewsEntry.model_fields if name != "fits")


def _vendor_keys(criteria: Criteria) -> list[str]:
    return [f"v {plain_name(name)}" for name in criteria.vendors]


def _product_keys(criteria: Criteria) -> list[str]:
    return [f"p {':'.join(map(plain_name, name.split(':')))}" for name in criteria.products]
