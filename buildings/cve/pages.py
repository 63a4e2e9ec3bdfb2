"""The daily list for people: /cve with the teaser for all and the 25 with a key, and a page for each CVE, which can be shared."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from buildings.cve.arguments import number_of, read_cve_id, read_day
from buildings.cve.edition import Edition
from buildings.cve.forecast_store import EarlierEpss, load_earlier_epss
from buildings.cve.latest import CveSite
from buildings.cve.models import Teaser
from buildings.cve.ranking import RankedSet
from buildings.cve.reader_feeds import is_free
from buildings.cve.server import archived_brief, brief_teaser, cve_verdict, kev_fresh, top_cves_today
from buildings.cve.store import all_days, load_leading
from campus import Problem, Request, Response, Storage

LIST = "/cve"
DAYS_OF_HISTORY = 30
ResultT = TypeVar("ResultT")
_HISTORIES: WeakKeyDictionary[Any, tuple[object, "History"]] = WeakKeyDictionary()
"""What each campus in this process read last, with the list that it belongs to."""


@dataclass(frozen=True)
class History:
    """The EPSS of every CVE and the ranks of KEV's over the archived days, as far as they are stored; None on a day without the CVE."""

    days: Sequence[date] = ()
    sets: Sequence[RankedSet] = ()
    latest: Edition | None = None
    changes: Sequence[EarlierEpss] = ()

    def epss(self, cve_id: str) -> list[float | None]:
        """EPSS by day, the oldest first: from the latest list back by the changes."""
        if self.latest is None:
            return []
        number, cve = number_of(cve_id), self.latest.ranked.find(cve_id)
        scores = [(self.latest.facts.issues.epss.issued.date(), cve.epss if cve else None)]
        for change in self.changes:
            scores.append((change.previous_day, change.score(number, scores[-1][1])))
        return [next((score for day, score in scores if day <= list_day), None) for list_day in self.days]

    def ranks(self, cve_id: str) -> list[int | None]:
        """Ranks by day, the oldest first."""
        return [found.rank if (found := one.find(cve_id)) else None for one in self.sets]


async def top_three(site: CveSite) -> str:
    """Today's first three, for the start page; nothing if the operator sells them."""
    if not is_free(site, "brief_teaser"):
        return ""
    return site.part("top_three.html", teaser=await brief_teaser(site=site))


async def daily_list(request: Request, site: CveSite) -> Response:
    """The teaser, and with a key the 25 of today or of a past day with the week's additions. `?id=` leads to the page of a CVE."""
    if wanted := request.query_params.get("id", "").strip():
        return Response(status_code=303, headers={"Location": f"{LIST}/{read_cve_id(wanted)}"})
    teaser = await _teaser(request, site)
    day = request.query_params.get("day", "").strip()
    if day:
        brief, refusal = await _asked(request, site, "archived_brief", partial(archived_brief, read_day(day), site=site))
    else:
        brief, refusal = await _asked(request, site, "top_cves_today", partial(top_cves_today, site=site))
    if refusal is not None and refusal.status not in (402, 403):
        raise refusal
    if brief is None:
        return site.page("teaser.html", request, data=teaser, teaser=teaser)
    fresh, _ = await _asked(request, site, "kev_fresh", partial(kev_fresh, site=site))
    history = await history_of(site)
    return site.page(
        "list.html",
        request,
        data=brief,
        brief=brief,
        fresh=fresh,
        history=history,
        day=day,
        archive_start=site.settings.archive_start,
    )


async def verdict(request: Request, site: CveSite) -> Response:
    """One CVE: its verdict with a key, else what the teaser says of it."""
    cve_id = read_cve_id(request.path_params["cve_id"])
    found, refusal = await _asked(request, site, "cve_verdict", partial(cve_verdict, cve_id, site=site))
    if found is None:
        teaser = await _teaser(request, site)
        entry = next((one for one in teaser.teaser if one.cve_id == cve_id), None)
        data = {"ok": True, "cve_id": cve_id, "day": teaser.day, "teaser": entry}
        return site.page("cve_closed.html", request, data=data, cve_id=cve_id, entry=entry, teaser=teaser, refusal=refusal)
    return site.page("cve.html", request, data=found, verdict=found, cve_id=cve_id, history=await history_of(site))


async def _teaser(request: Request, site: CveSite) -> Teaser:
    """The teaser. Raises the refusal of brief_teaser if the operator sells it and the visitor has no access."""
    if not is_free(site, "brief_teaser"):
        await site.admit(request, "brief_teaser")
    return await brief_teaser(site=site)


async def _asked(
    request: Request, site: CveSite, tool: str, ask: Callable[[], Awaitable[ResultT]]
) -> tuple[ResultT | None, Problem | None]:
    """What `ask` returns if the visitor may call the tool, else the refusal."""
    try:
        await site.admit(request, tool)
        return await ask(), None
    except Problem as refusal:
        return None, refusal


async def history_of(site: CveSite) -> History:
    """The archived days, read again when the list changes."""
    edition = site.state.edition
    known = _HISTORIES.get(site.state)
    if known is None or known[0] is not edition:
        known = _HISTORIES[site.state] = edition, await _read_history(site.storage, site.state.real_edition)
    return known[1]


async def _read_history(storage: Storage, latest: Edition | None) -> History:
    if latest is None:
        return History()
    days = (await all_days(storage))[-DAYS_OF_HISTORY:]
    found = [(day, leading[0]) for day in days if (leading := await load_leading(storage, day))]
    changes = await load_earlier_epss(storage, latest.facts.issues.epss.issued.date(), days=DAYS_OF_HISTORY)
    return History([day for day, _ in found], [one for _, one in found], latest, changes)
