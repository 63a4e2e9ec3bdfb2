"""The pages for people: the daily list and the page of a CVE, which can be shared; the forecast; the methodology."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from typing import Any, TypeVar, get_args
from urllib.parse import quote

from buildings.cve import server as tools
from buildings.cve.archive.histories import Course
from buildings.cve.archive.history import SCORE_STEP
from buildings.cve.arguments import Exposure, canonical, other_name, read_cve_id, read_day, read_name
from buildings.cve.forecast.formula import FORECAST_LENGTH
from buildings.cve.forecast.models import ForecastRecord
from buildings.cve.models import CveFacts, Entry, Teaser
from buildings.cve.names.store import the_cve
from buildings.cve.numbers import number_of
from buildings.cve.pages.reader_feeds import is_free
from buildings.cve.plain_names import plain_name
from buildings.cve.ranking.deadlines import ROWS, SOURCE
from buildings.cve.ranking.formula import factors_of
from buildings.cve.ranking.latest import CveSite
from buildings.cve.ranking.methodology import DEADLINE_COUNTS, DEADLINES, FORECAST_METHODOLOGY, METHODOLOGY, NOTICES
from buildings.cve.ranking.results import feeds_of, gaps_of, urgency_in
from campus import Problem, Request, Response

LIST = "/cve"
VENDORS = f"{LIST}/vendors"
LONGEST_SEARCH = 60
HITS_SHOWN, LISTS_SHOWN = 20, 30
LONGEST_COURSE = 10_000
DECAY_DAYS = range(0, 181, 15)
ResultT = TypeVar("ResultT")
Tool = Callable[..., Awaitable[ResultT]]
NOT_ADMITTED = (402, 403)
FILTERS: Mapping[str, tuple[str, Callable[[Entry, date], bool]]] = {
    "": ("All", lambda entry, today: True),
    "overdue": ("Past KEV's due date", lambda entry, today: entry.kev_due_date is not None and entry.kev_due_date < today),
    "soon": ("Due within 7 days", lambda entry, today: entry.kev_due_date is not None and 0 <= (entry.kev_due_date - today).days <= 7),
    "ransomware": ("Used for ransomware", lambda entry, today: bool(entry.ransomware)),
}
"""What of the list is shown, each with its label; the first is the default."""
SORTS: Mapping[str, tuple[str, Callable[[Entry], Any]]] = {
    "rank": ("By rank", lambda entry: entry.rank),
    "due": ("By due date in KEV", lambda entry: (entry.kev_due_date or date.max, entry.rank)),
    "epss": ("By EPSS", lambda entry: (-(entry.epss or 0), entry.rank)),
}
"""How the list can be sorted, each with its label; the first is the default."""
Rows = tuple[tuple[Entry, Course], ...]  # Entries, each with the course of its EPSS; none for a past list.


async def _facts(site: CveSite, teaser: Teaser) -> tuple[CveFacts | None, ...]:
    free = is_free(site, "cve_facts")
    return tuple([await tools.cve_facts(entry.cve_id, site=site) if free else None for entry in teaser.teaser])


async def daily_list(request: Request, site: CveSite) -> Response:
    looked_up = request.query_params.get("id", "").strip()[:LONGEST_SEARCH]
    if name := canonical(looked_up) or canonical(f"CVE-{looked_up}") or other_name(looked_up):
        return Response(status_code=303, headers={"Location": f"{LIST}/{name}"})
    if looked_up and "text/html" not in request.headers.get("accept", ""):
        read_cve_id(looked_up)  # a program gets the problem, a person the page with a sentence
    status = 400 if looked_up else 200
    teaser = await _answer(request, site, tools.brief_teaser)
    day = request.query_params.get("day", "").strip()
    if day:
        brief, refusal = await asked(request, site, tools.archived_brief, read_day(day))
    else:
        brief, refusal = await asked(request, site, tools.top_cves_today)
    if brief is None:
        counts = await answer_or_none(request, site, tools.brief_change_counts)
        return site.page(
            "teaser.html",
            request,
            data=teaser,
            status=status,
            teaser=teaser,
            facts=await _facts(site, teaser),
            feeds=feeds_of(site.state.shown(), today=site.now().date()),
            gaps=gaps_of(site.state.shown()),
            counts=counts,
            refusal=refusal,
            looked_up=looked_up,
            today=site.now().date(),
        )
    if request.query_params.get("download") == "csv":
        return file(brief.as_csv().encode(), "text/csv; charset=utf-8", f"{brief.day}.csv")
    today = site.now().date()
    sort, show = request.query_params.get("sort", ""), request.query_params.get("show", "")
    sort, show = sort if sort in SORTS else "rank", show if show in FILTERS else ""
    shown = {name: [one for one in brief.entries if fits(one, today)] for name, (_, fits) in FILTERS.items()}
    fresh = None if day else await answer_or_none(request, site, tools.kev_fresh)
    changes = await answer_or_none(request, site, tools.brief_changes, to_day=brief.day)
    return site.page(
        "list.html",
        request,
        data=brief,
        status=status,
        brief=brief,
        formula=METHODOLOGY.formula,
        gaps=() if day else gaps_of(site.state.shown()),
        rows=await _rows(site, sorted(shown[show], key=SORTS[sort][1]), is_past=bool(day)),
        filters=tuple((name, label, len(shown[name])) for name, (label, _) in FILTERS.items()),
        show=show,
        fresh=fresh,
        fresh_rows=await _rows(site, fresh.entries if fresh else (), is_past=bool(day)),
        changes=changes,
        sort=sort,
        sorts=tuple((name, label) for name, (label, _) in SORTS.items()),
        looked_up=looked_up,
        today=today,
        day=day,
        archive_start=site.settings.archive_start,
    )


async def _rows(site: CveSite, entries: Sequence[Entry], *, is_past: bool) -> Rows:
    if is_past or not entries:
        return tuple((entry, ()) for entry in entries)
    courses = await site.state.histories.courses(entry.cve_id for entry in entries)
    return tuple((entry, courses[entry.cve_id]) for entry in entries)


def vendor_path(name: str) -> str:
    """The page of a vendor, however its name is spelled."""
    return f"{VENDORS}/{quote(plain_name(name), safe='')}"


async def verdict(request: Request, site: CveSite) -> Response:
    name = read_name(request.path_params["cve_id"])
    cve_id = await the_cve(site.storage, name)
    if name != cve_id:
        return Response(status_code=303, headers={"Location": f"{LIST}/{cve_id}"})
    exposed = exposed_in(request)
    facts = await _answer(request, site, tools.cve_facts, cve_id, exposed=exposed)
    found, refusal = await asked(request, site, tools.cve_verdict, cve_id, exposed=exposed)
    edition, today = await site.state.knowing([cve_id]), site.now().date()
    cve = edition.ranked.find(cve_id)
    history = await answer_or_none(request, site, tools.cve_history, cve_id, limit=LONGEST_COURSE) if found else None
    return site.page(
        "cve.html",
        request,
        data=found or facts,
        facts=facts,
        gaps=gaps_of(site.state.shown()),
        urgency=urgency_in(edition, cve_id, cve, exposed=exposed, today=today) if cve else None,
        nvd_record=edition.nvd.state_of(number_of(cve_id)),
        verdict=found,
        refusal=refusal,
        cve_id=cve_id,
        exposed=exposed,
        vendor_path=vendor_path(facts.listing.vendor) if facts.listing else None,
        history=history,
        course=history.score_course() if history else (),
        step=SCORE_STEP,
        today=today,
    )


def exposed_in(request: Request) -> Exposure:
    """Of which assets a page speaks, from its address."""
    given = request.query_params.get("exposed")
    return next((exposure for exposure in get_args(Exposure) if exposure == given), "unknown")


async def forecast(request: Request, site: CveSite) -> Response:
    teaser = await _answer(request, site, tools.next_teaser)
    record = await _answer(request, site, tools.next_record, LISTS_SHOWN)
    day = request.query_params.get("day", "").strip()
    listed, refusal = await asked(request, site, tools.next_in_kev, read_day(day) if day else None, FORECAST_LENGTH)
    return site.page(
        "forecast.html",
        request,
        percent=percent,
        data=listed or teaser,
        teaser=teaser,
        forecast=listed,
        record=record,
        lists=record.lists[:LISTS_SHOWN],
        shares=shares_of(record),
        hits=record.hits[:HITS_SHOWN],
        methodology=FORECAST_METHODOLOGY,
        refusal=refusal,
        today=site.now().date(),
        day=day,
    )


def shares_of(record: ForecastRecord) -> tuple[tuple[str, str, int, float, float, float], ...]:
    graded = {one.ranking: one.depths for one in record.rankings}
    names = {"next_in_kev": "Forecast", "epss": "EPSS"}
    depths = [(name, number, depth) for number, name in enumerate(names, start=1) for depth in graded.get(name, ())]
    return tuple(
        (f"{names[name]}, first {one.first:,}", f"{one.hits:,} of {one.names:,} names", number, span.low, one.precision, span.high)
        for name, number, one in sorted(depths, key=lambda row: (row[2].first, row[1]))
        if one.precision is not None and (span := one.precision_interval)
    )


def file(body: bytes, media_type: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="cves-{name}"', "Cache-Control": "private, no-store"}
    return Response(body, media_type=media_type, headers=headers)


def percent(share: float) -> str:
    """A share, 0 to 1, in percent with two digits: 0.55, 5.5, 55, 100."""
    return f"{share * 100:.2g}" if share < 0.995 else "100"


async def methodology(request: Request, site: CveSite) -> Response:
    data = {"ok": True, "brief": METHODOLOGY, "deadlines": DEADLINES, "forecast": FORECAST_METHODOLOGY, "notices": NOTICES}
    return site.page(
        "methodology.html",
        request,
        data=data,
        brief=METHODOLOGY,
        deadlines=DEADLINES,
        rows=ROWS,
        counts=DEADLINE_COUNTS,
        source=SOURCE,
        forecast=FORECAST_METHODOLOGY,
        notices=NOTICES,
        decay=tuple((f"EPSS {share:.0%}", tuple(score_after(days, epss=share) for days in DECAY_DAYS)) for share in (1.0, 0.5, 0.0)),
        days_after=tuple(f"{days} days after the listing" if days else "the day of the listing" for days in DECAY_DAYS),
    )


def score_after(days: int, *, epss: float) -> float:
    return factors_of(epss=epss, added=date.min, day=date.min + timedelta(days=days)).score


async def _answer(request: Request, site: CveSite, tool: Tool[ResultT], *sent: object, **named: object) -> ResultT:
    """What a tool returns that may be free. Raises its refusal if the operator sells it and the visitor has no access."""
    if not is_free(site, tool.__name__):
        await site.admit(request, tool.__name__)
    return await tool(*sent, site=site, **named)


async def asked(
    request: Request, site: CveSite, tool: Tool[ResultT], *sent: object, **named: object
) -> tuple[ResultT | None, Problem | None]:
    """What a tool returns, or why the visitor may not call it. Raises every other refusal."""
    try:
        return await _answer(request, site, tool, *sent, **named), None
    except Problem as refusal:
        if refusal.status not in NOT_ADMITTED:
            raise
        return None, refusal


async def answer_or_none(request: Request, site: CveSite, tool: Tool[ResultT], *sent: object, **named: object) -> ResultT | None:
    """What a tool returns that a page can do without."""
    with suppress(Problem):
        return await _answer(request, site, tool, *sent, **named)
    return None
