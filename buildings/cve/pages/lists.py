"""The pages for people: the daily list and the page of a CVE, which can be shared; the forecast; a report's verdicts; the methodology."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from buildings.cve.archive.histories import Course
from buildings.cve.arguments import read_cve_id, read_day
from buildings.cve.models import Entry
from buildings.cve.pages.reader_feeds import is_free
from buildings.cve.ranking.latest import CveSite
from buildings.cve.ranking.methodology import FORECAST_METHODOLOGY, METHODOLOGY, NOTICES
from buildings.cve.reports.batch import Verdicts
from buildings.cve.server import (
    archived_brief,
    brief_change_counts,
    brief_changes,
    brief_teaser,
    cve_history,
    cve_verdict,
    kev_fresh,
    next_in_kev,
    next_record,
    next_teaser,
    top_cves_today,
)
from campus import Problem, Request, Response

LIST = "/cve"
REPORT = f"{LIST}/report"
ROWS_SHOWN = 150
HITS_SHOWN = 20
ResultT = TypeVar("ResultT")
NOT_ADMITTED = (402, 403)
Rows = tuple[tuple[Entry, Course], ...]
"""Entries, each with the course of its EPSS; none for a past list."""


async def top_three(site: CveSite) -> str:
    """Today's first three, for the start page; nothing if the operator sells them."""
    if not is_free(site, "brief_teaser"):
        return ""
    return site.part("top_three.html", teaser=await brief_teaser(site=site))


async def daily_list(request: Request, site: CveSite) -> Response:
    """The teaser, and with a key the 25 of today or of a past day with what changed. `?id=` leads to the page of a CVE."""
    if wanted := request.query_params.get("id", "").strip():
        return Response(status_code=303, headers={"Location": f"{LIST}/{read_cve_id(wanted)}"})
    teaser = await _answer(request, site, "brief_teaser", partial(brief_teaser, site=site))
    day = request.query_params.get("day", "").strip()
    if day:
        brief, refusal = await _asked(request, site, "archived_brief", partial(archived_brief, read_day(day), site=site))
    else:
        brief, refusal = await _asked(request, site, "top_cves_today", partial(top_cves_today, site=site))
    if refusal is not None and refusal.status not in NOT_ADMITTED:
        raise refusal
    if brief is None:
        counts, _ = await _asked(request, site, "brief_change_counts", partial(brief_change_counts, site=site))
        return site.page("teaser.html", request, data=teaser, teaser=teaser, counts=counts, methodology=METHODOLOGY)
    fresh, _ = await _asked(request, site, "kev_fresh", partial(kev_fresh, site=site)) if not day else (None, None)
    changes, _ = await _asked(request, site, "brief_changes", partial(brief_changes, to_day=brief.day, site=site))
    return site.page(
        "list.html",
        request,
        data=brief,
        brief=brief,
        rows=await _rows(site, brief.entries, is_past=bool(day)),
        fresh=fresh,
        fresh_rows=await _rows(site, fresh.entries if fresh else (), is_past=bool(day)),
        changes=changes,
        day=day,
        archive_start=site.settings.archive_start,
    )


async def _rows(site: CveSite, entries: Sequence[Entry], *, is_past: bool) -> Rows:
    if is_past or not entries:
        return tuple((entry, ()) for entry in entries)
    courses = await site.state.histories.courses(entry.cve_id for entry in entries)
    return tuple((entry, courses[entry.cve_id]) for entry in entries)


async def verdict(request: Request, site: CveSite) -> Response:
    """One CVE: its verdict and history with a key, else what the teaser says of it."""
    cve_id = read_cve_id(request.path_params["cve_id"])
    found, refusal = await _asked(request, site, "cve_verdict", partial(cve_verdict, cve_id, site=site))
    if refusal is not None and refusal.status not in NOT_ADMITTED:
        raise refusal
    if found is None:
        teaser = await _answer(request, site, "brief_teaser", partial(brief_teaser, site=site))
        entry = next((one for one in teaser.teaser if one.cve_id == cve_id), None)
        data = {"ok": True, "signed_in": False, "cve_id": cve_id, "day": teaser.day, "teaser": entry, "detail": refusal and refusal.detail}
        return site.page("cve_closed.html", request, data=data, cve_id=cve_id, entry=entry, teaser=teaser, refusal=refusal)
    history, _ = await _asked(request, site, "cve_history", partial(cve_history, cve_id, site=site))
    return site.page("cve.html", request, data=found, verdict=found, cve_id=cve_id, history=history)


async def forecast(request: Request, site: CveSite) -> Response:
    """The forecast: its first three names, with a key all 100, today's or those of a past day; and the record of all."""
    teaser = await _answer(request, site, "next_teaser", partial(next_teaser, site=site))
    record = await _answer(request, site, "next_record", partial(next_record, site=site))
    day = request.query_params.get("day", "").strip()
    wanted = partial(next_in_kev, read_day(day) if day else None, site=site)
    listed, refusal = await _asked(request, site, "next_in_kev", wanted)
    if refusal is not None and refusal.status not in NOT_ADMITTED:
        raise refusal
    return site.page(
        "forecast.html",
        request,
        data=listed or teaser,
        teaser=teaser,
        forecast=listed,
        record=record,
        hits=record.hits[:HITS_SHOWN],
        methodology=FORECAST_METHODOLOGY,
        day=day,
    )


async def report(request: Request, site: CveSite) -> Response:
    """A box for a scanner's report, or a list of CVEs, and their verdicts; without a key, how to get one."""
    given = await request.form() if request.method == "POST" else {}
    text = given.get("report", "")
    found, refusal = None, None
    try:
        await site.admit(request, "cve_verdicts")
        if request.method == "POST":
            found = Verdicts.model_validate(await site.call(request, "cve_verdicts", report=text))
    except Problem as problem:
        refusal = problem
    is_open = refusal is None or refusal.status not in NOT_ADMITTED
    return site.page(
        "report.html",
        request,
        data=found or {"ok": refusal is None or not is_open, "signed_in": is_open, "detail": refusal.detail if refusal else None},
        status=refusal.status if refusal and is_open else 200,
        headers=refusal.headers if refusal and is_open else None,
        found=found,
        shown=found.verdicts[:ROWS_SHOWN] if found else (),
        refusal=refusal,
        is_open=is_open,
        route=f"{site.url}/v1/cve/verdicts",
    )


async def methodology(request: Request, site: CveSite) -> Response:
    """How the list and the forecast are made and graded, with evidence and limits, for everyone."""
    data = {"ok": True, "brief": METHODOLOGY, "forecast": FORECAST_METHODOLOGY, "notices": NOTICES}
    return site.page("methodology.html", request, data=data, brief=METHODOLOGY, forecast=FORECAST_METHODOLOGY, notices=NOTICES)


async def _answer(request: Request, site: CveSite, tool: str, ask: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """What a tool returns that may be free. Raises its refusal if the operator sells it and the visitor has no access."""
    if not is_free(site, tool):
        await site.admit(request, tool)
    return await ask()


async def _asked(
    request: Request, site: CveSite, tool: str, ask: Callable[[], Awaitable[ResultT]]
) -> tuple[ResultT | None, Problem | None]:
    """What `ask` returns if the visitor may call the tool, else the refusal."""
    try:
        return await _answer(request, site, tool, ask), None
    except Problem as refusal:
        return None, refusal
