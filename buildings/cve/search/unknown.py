"""Says which words of criteria no CVE has, and what may be meant by them."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from sqlalchemy import Connection, select

from buildings.cve.arguments import number_of
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.plain_names import plain_name, plain_product
from buildings.cve.search.criteria import CRITERIA, Criteria, Days
from buildings.cve.tables import RANKED

KINDS = {"vendors": "vendor", "products": "product", "packages": "package", "cwes": "weakness"}
MOST_SUGGESTIONS = 2
MOST_SHOWN = 5


def notes_on(connection: Connection, criteria: Criteria, days: Days, kev: Mapping[str, KevEntry]) -> list[str]:
    """A sentence for each name and weakness that no CVE has so far, and one for the CVEs that are not ranked. KEV's names are suggested."""
    notes = []
    for name, kind in KINDS.items():
        unknown = [word for word in getattr(criteria, name) or () if not _is_known(connection, name, word, days)]
        notes += [f"No CVE is of the {kind} {word!r} so far.{_hint(name, word, kev)}" for word in unknown[:MOST_SHOWN]]
        notes += [f"Nor of {len(unknown) - MOST_SHOWN} others."] if len(unknown) > MOST_SHOWN else []
    ids = criteria.cve_ids or ()
    asked = RANKED.c.number.in_([number_of(one) for one in ids]), RANKED.c.rank != 0
    ranked = set(connection.scalars(select(RANKED.c.number).where(*asked))) if ids else set()
    if missing := [one for one in ids if number_of(one) not in ranked]:
        shown = ", ".join(missing[:MOST_SHOWN]) + (f" and {len(missing) - MOST_SHOWN} others" if len(missing) > MOST_SHOWN else "")
        notes.append(f"Not ranked: {shown}. cve_facts says why.")
    return notes


def _is_known(connection: Connection, name: str, word: str, days: Days) -> bool:
    criterion = CRITERIA[name]
    assert criterion.table is not None, "these are about a table"
    return connection.scalar(select(criterion.table.c.number).where(criterion.holds([word], days)).limit(1)) is not None


def _hint(name: str, word: str, kev: Mapping[str, KevEntry]) -> str:
    known = _kev_names(name, word, kev)
    meant = [repr(known[one]) for one in alike(_plain(word), known)]
    return f" Did you mean {' or '.join(meant)}?" if meant else ""


def alike(plain: str, known: Collection[str]) -> list[str]:
    """The plain names that one may have been meant for: those that it is part of, or that are part of it, else the likest."""
    parts = sorted((one for one in known if len(one) > 1 and (one in plain or plain in one)), key=lambda one: abs(len(one) - len(plain)))
    return (parts or get_close_matches(plain, known))[:MOST_SUGGESTIONS]


def _kev_names(name: str, word: str, kev: Mapping[str, KevEntry]) -> Mapping[str, str]:
    """Vendors or products of KEV by their plain names; products as they are asked for, with or without a vendor."""
    if name == "vendors":
        return {plain_name(one.vendor): one.vendor for one in kev.values()}
    if name == "products":
        has_vendor = plain_product(word)[0] is not None
        names = (f"{one.vendor}:{one.product}" if has_vendor else one.product for one in kev.values())
        return {_plain(one): one for one in names}
    return {}


def _plain(word: str) -> str:
    vendor, product = plain_product(word)
    return f"{vendor}:{product}" if vendor else product
