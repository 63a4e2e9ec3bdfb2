"""The pages of vendors: those in KEV by the number of their CVEs, and what CISA says of one. Ranks and scores are for who may search."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

from buildings.cve.feeds.kev import KevEntry
from buildings.cve.pages.lists import VENDORS, asked, vendor_path
from buildings.cve.plain_names import plain_name
from buildings.cve.ranking.latest import CveSite
from buildings.cve.ranking.results import gaps_of
from buildings.cve.search.models import MOST_FOUND
from buildings.cve.search.tools import search_cves
from buildings.cve.search.unknown import alike
from campus import Problem, Request, Response

PRODUCTS_SHOWN, ENTRIES_SHOWN, LONGEST = 8, 100, 200


@dataclass(frozen=True)
class Vendor:
    """A vendor by its plain name, with its entries in KEV, the newest first."""

    plain: str
    entries: Sequence[KevEntry]

    @cached_property
    def name(self) -> str:
        """As most entries spell it."""
        return Counter(one.vendor for one in self.entries).most_common(1)[0][0]

    @property
    def path(self) -> str:
        return vendor_path(self.plain)

    @cached_property
    def ransomware(self) -> int:
        return sum(bool(one.ransomware) for one in self.entries)

    @property
    def products(self) -> list[tuple[str, int]]:
        return Counter(one.product for one in self.entries).most_common(PRODUCTS_SHOWN)

    def due(self, today: date) -> date | None:
        """The next of CISA's due dates that has not passed."""
        return min((one.due_date for one in self.entries if one.due_date and one.due_date >= today), default=None)

    def as_data(self, today: date) -> dict[str, object]:
        newest = self.entries[0].listed_by
        return {"name": self.name, "path": self.path, "in_kev": len(self.entries), "ransomware": self.ransomware, "newest": newest} | {
            "next_due": self.due(today)
        }


def vendors_of(kev: Mapping[str, KevEntry]) -> dict[str, Vendor]:
    """The vendors in KEV by their plain names, those with most entries first."""
    entries: dict[str, list[KevEntry]] = defaultdict(list)
    for entry in sorted(kev.values(), key=lambda one: (one.listed_by, one.cve_id), reverse=True):
        entries[plain_name(entry.vendor)].append(entry)
    return {plain: Vendor(plain, each) for plain, each in sorted(entries.items(), key=lambda one: (-len(one[1]), one[0])) if plain}


async def all_vendors(request: Request, site: CveSite) -> Response:
    edition = site.state.shown()
    today = site.now().date()
    vendors = list(vendors_of(edition.facts.kev).values())
    return site.page(
        "vendors.html",
        request,
        data={"ok": True, "day": edition.day, "vendors": [one.as_data(today) for one in vendors]},
        vendors=vendors,
        edition=edition,
        gaps=gaps_of(edition),
        ransomware=sum(one.ransomware for one in vendors),
        today=today,
    )


async def one_vendor(request: Request, site: CveSite) -> Response:
    edition = site.state.shown()
    today = site.now().date()
    given = request.path_params["name"][:LONGEST]
    vendors = vendors_of(edition.facts.kev)
    plain = plain_name(given)
    if (vendor := vendors.get(plain)) is None:
        return _unknown(request, site, given, [vendors[one] for one in alike(plain, vendors)])
    if given != plain:
        return Response(status_code=308, headers={"Location": vendor.path})
    found, refusal = await asked(request, site, search_cves, vendors=[vendor.name], kev=True, limit=MOST_FOUND)
    ranked = {one.cve_id: one for one in found.entries} if found else {}
    entries = sorted(vendor.entries, key=lambda one: ranked[one.cve_id].rank if one.cve_id in ranked else len(ranked) + 10**9)
    shown = entries if found else vendor.entries
    listed = [
        {"cve_id": one.cve_id, "product": one.product, "name": one.name, "date_added": one.date_added}
        | {"due_date": one.due_date, "ransomware": True if one.ransomware else None}
        | ({"rank": ranked[one.cve_id].rank, "score": ranked[one.cve_id].score} if one.cve_id in ranked else {})
        for one in shown
    ]
    return site.page(
        "vendor.html",
        request,
        data={"ok": True, "day": edition.day, **vendor.as_data(today), "entries": listed},
        vendor=vendor,
        entries=shown[:ENTRIES_SHOWN],
        ranked=ranked,
        refusal=refusal,
        edition=edition,
        gaps=gaps_of(edition),
        share=sum(bool(one.ransomware) for one in edition.facts.kev.values()) / len(edition.facts.kev),
        today=today,
    )


def _unknown(request: Request, site: CveSite, given: str, meant: Sequence[Vendor]) -> Response:
    if "text/html" not in request.headers.get("accept", ""):
        hint = f"; did you mean {' or '.join(one.name for one in meant)}?" if meant else f"; {VENDORS} lists those that it has"
        raise Problem(404, "no_such_vendor", f"KEV has no vendor with that name{hint}")
    data = {"ok": False, "vendor": given, "meant": [one.name for one in meant]}
    return site.page("no_vendor.html", request, data=data, status=404, given=given, meant=meant)
