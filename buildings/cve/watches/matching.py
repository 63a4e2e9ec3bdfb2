"""Which CVEs fit watches on the list that is stored, by the conditions of a search. What thousands of watches share is read once.

A watch has a least score, so only the CVEs that reach the lowest of all are looked at: their names, and for what the criteria say beside
names one search for each difference.
"""

import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from operator import sub

import orjson
from sqlalchemy import Connection, select

from buildings.cve.arguments import Exposure, number_of, spelled
from buildings.cve.plain_names import plain_name, plain_package, plain_product
from buildings.cve.ranking.deadlines import urgency_of
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.formula import little_endian
from buildings.cve.search.criteria import Criteria, reached
from buildings.cve.search.queries import days_of, found_of, numbers_of, rows_of, ssvc_of
from buildings.cve.tables import PRODUCTS, RANKED
from buildings.cve.watches.models import NewsEntry
from buildings.cve.watches.reports import Known

NO_DIGEST = bytes(16)
CACHED = 50  # Searches whose results are kept, of up to 300 KB each: 38,000 numbers if the lowest score is 1.
URGENCY_MEMBERS = ("when", "when_if_exposed", "deadlines")
NEWS_MEMBERS = tuple(name for name in NewsEntry.model_fields if name not in ("fits", "packages", *URGENCY_MEMBERS))


class Watched(Criteria):
    """The criteria of a watch, which have a least score, and whether the internet reaches what it watches."""

    exposed: Exposure = "unknown"


def read_criteria(block: bytes) -> Watched:
    """The criteria of a watch as they are stored. They were checked before: one watch cannot keep a list from being made."""
    return Watched.model_construct(**orjson.loads(block))


def pack_known(numbers: Collection[int], digest: bytes = NO_DIGEST) -> bytes:
    """The CVEs that a watch knows, as one block: the digest of what fitted, then the compressed distances, about two bytes each."""
    ordered = sorted(numbers)
    distances = array("q", map(sub, ordered, [0, *ordered]))
    return digest + zlib.compress(little_endian(distances).tobytes(), 1)


def unpack_known(block: bytes) -> set[int]:
    distances = array("q", zlib.decompress(block[len(NO_DIGEST) :]) if block else b"")
    return set(accumulate(little_endian(distances)))


def digest_of(numbers: Collection[int]) -> bytes:
    return blake2b(little_endian(array("q", sorted(numbers))).tobytes(), digest_size=len(NO_DIGEST)).digest()


class Named:
    """The CVEs of a name in rank order, each once, with their places among all."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._places = array("q")
        self._digests: dict[int, bytes] = {}

    def add(self, number: int, place: int) -> None:
        if not self._places or self._places[-1] != place:
            self._numbers.append(number)
            self._places.append(place)

    def before(self, end: int) -> Sequence[int]:
        return self._numbers[: bisect_left(self._places, end)]

    def digest(self, end: int) -> bytes:
        count = bisect_left(self._places, end)
        if count not in self._digests:
            self._digests[count] = digest_of(self._numbers[:count])
        return self._digests[count]

    def has(self, place: int) -> bool:
        found = bisect_left(self._places, place)
        return found < len(self._places) and self._places[found] == place


class Matcher:
    """Finds what fits watches whose least score is `lowest` or higher, in the rows of an edition that a connection sees."""

    def __init__(self, connection: Connection, edition: Edition, lowest: float) -> None:
        self._connection = connection
        self._edition = edition
        self._days = days = days_of(connection, edition, today=edition.day)
        self._lowest = Criteria(least_score=lowest)
        leading = select(RANKED.c.number, RANKED.c.score).where(RANKED.c.rank != 0, *self._lowest.conditions(days))
        rows = connection.execute(leading.order_by(RANKED.c.rank)).all()
        self._scores = [-row.score for row in rows]
        self.places = {row.number: place for place, row in enumerate(rows)}
        self._all = Named()
        for number, place in self.places.items():
            self._all.add(number, place)
        self._named = self._names()
        self._searches: dict[str, tuple[Sequence[int], bytes]] = {}
        self._entries: dict[tuple[int, Exposure], NewsEntry] = {}
        self.judged: dict[tuple[str, Exposure, float], Known] = {}

    def fitting(self, criteria: Criteria) -> set[int]:
        end, ids, named = self._named_by(criteria)
        found = set(ids).union(*(one.before(end) for one in named))
        return found.intersection(self._found(beside)[0]) if (beside := criteria.beside_names) else found

    def digest(self, criteria: Criteria) -> bytes:
        """A digest of what fits: while it stays the same, so do the CVEs that fit."""
        end, ids, named = self._named_by(criteria)
        whole = blake2b(digest_of(ids), digest_size=len(NO_DIGEST))
        for one in named:
            whole.update(one.digest(end))
        if beside := criteria.beside_names:
            whole.update(self._found(beside)[1])
        return whole.digest()

    def _named_by(self, criteria: Criteria) -> tuple[int, Sequence[int], Sequence[Named]]:
        """The place before which CVEs reach the least score, and what is named: identifiers that do, and names; all CVEs if nothing is."""
        assert criteria.least_score is not None, "a watch has one"
        end = bisect_right(self._scores, -reached(criteria.least_score))
        if not criteria.names_cves:
            return end, (), [self._all]
        ids = (number_of(one) for one in criteria.cve_ids or ())
        named = [self._named[key] for _, key in keys_of(criteria) if key in self._named]
        return end, [number for number in ids if self.places.get(number, end) < end], named

    def entries(self, numbers: Collection[int], criteria: Watched) -> Iterator[NewsEntry]:
        """What is told of these CVEs, each with what of the watch names it."""
        exposed = criteria.exposed
        if unknown := [number for number in numbers if (number, exposed) not in self._entries]:
            for row in rows_of(self._connection, unknown, self._days):
                cve = found_of(row)
                listing = self._edition.facts.kev.get(cve.cve_id)
                urgency = urgency_of(listing, ssvc_of(row), epss=cve.epss, exposed=exposed, today=self._edition.day)
                own = {name: getattr(urgency, name) for name in URGENCY_MEMBERS}
                shared = {name: getattr(cve, name) for name in NEWS_MEMBERS}
                self._entries[row.number, exposed] = NewsEntry(fits=(), **own, **shared)
        for number in numbers:
            watched = ["cve_ids"] if spelled(number) in (criteria.cve_ids or ()) else []
            named = [words for words, key in keys_of(criteria) if key in self._named and self._named[key].has(self.places[number])]
            yield self._entries[number, exposed].model_copy(update={"fits": (*watched, *named)})

    def _found(self, criteria: Criteria) -> tuple[Sequence[int], bytes]:
        """What a search finds, with its digest."""
        key = criteria.model_dump_json(exclude_none=True)
        if key not in self._searches:
            if len(self._searches) >= CACHED:
                self._searches.pop(next(iter(self._searches)))
            sought = criteria.model_copy(update={"least_score": self._lowest.least_score})
            numbers = numbers_of(self._connection, sought, self._days)
            self._searches[key] = array("q", numbers), digest_of(numbers)
        return self._searches[key]

    def _names(self) -> Mapping[str, Named]:
        found: dict[str, Named] = defaultdict(Named)
        product = PRODUCTS.c
        names = select(product.number, product.plain_vendor, product.plain_product).where(product.number == RANKED.c.number)
        rows = self._connection.execute(names.where(*self._lowest.conditions(self._days)).order_by(RANKED.c.rank))
        for number, vendor, name in rows:
            for key in (f"v {vendor}", f"p {name}", f"p {vendor}:{name}"):
                found[key].add(number, self.places[number])
        return dict(found)


def keys_of(criteria: Criteria) -> Iterator[tuple[str, str]]:
    """What a watch names beside identifiers: in words, and as Matcher has it."""
    for name in criteria.vendors or ():
        yield f"vendor {name}", f"v {plain_name(name)}"
    for name in criteria.products or ():
        vendor, product = plain_product(name)
        yield f"product {name}", f"p {vendor}:{product}" if vendor else f"p {product}"
    for name in criteria.packages or ():
        yield f"package {name}", f"p {plain_package(name)}"
