"""The MCP server of the daily list and the forecast: the tools, with their HTTP routes and prices."""

import secrets
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from fastmcp import FastMCP
from pydantic import Field

from buildings.cve.archive.history import CveHistory
from buildings.cve.archive.lists import first_and_last_day
from buildings.cve.arguments import (
    BriefLimit,
    ChangesFrom,
    ChangesLimit,
    ChangesTo,
    CveId,
    CveIds,
    CveName,
    Day,
    Exposed,
    ExposedPlaces,
    FindingsLimit,
    ForecastDay,
    FreshLimit,
    HistoryFrom,
    HistoryLimit,
    HistoryTo,
    Limit,
    MethodologyToo,
    RecordLimit,
    Report,
    WithMethodology,
)
from buildings.cve.forecast.models import ForecastList, ForecastRecord, ForecastTeaser
from buildings.cve.forecast.store import load_forecast
from buildings.cve.models import Brief, CveFacts, FreshList, Miss, Teaser, Verdict, either
from buildings.cve.names.store import the_cve
from buildings.cve.pages import feed_urls
from buildings.cve.pages.feed_urls import FeedId, FeedKept, FeedList, FeedMade, FeedRevoked, Label, lineage_in, make_feed_url
from buildings.cve.ranking.changes import ChangeCounts, Changes
from buildings.cve.ranking.latest import CveSite, DayResults, ForecastAnswers
from buildings.cve.ranking.results import verdict_of
from buildings.cve.reports.apart import LARGEST_REPORT, LARGEST_TEXT
from buildings.cve.reports.batch import DEFAULT_LIMIT, Asked, Verdicts
from buildings.cve.reports.identifiers import listed_ids, no_ids
from buildings.cve.tables import ArchivedForecast, BriefEdition
from campus import Caller, CurrentCaller, CurrentSite, Problem, access, free, route
from campus.layout import add_app
from twins import CurrentFormat

WRITES = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False}
SETS = WRITES | {"idempotentHint": True}
REVOKES = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False}
READ_ONLY = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
TEMPLATES = Path(__file__).parent / "templates"
TEASER_CACHE = "public, max-age=300, stale-if-error=86400"

Edition = Annotated[int | None, Field(ge=1, le=1000, description="Edition, 1 is the first; default: the newest.")]

mcp = FastMCP(
    "Daily CVE prioritization",
    instructions="Which vulnerabilities to fix first: once a day all CVEs are ranked by known exploitation (CISA KEV), the probability of "
    "exploitation (EPSS) and the days since the KEV listing. Start with brief_teaser, the top three. top_cves_today returns the day's list "
    "of 25 with its methodology, brief_changes what changed since the list before and why, kev_fresh the week's additions to KEV, "
    "cve_facts what a CVE is, cve_verdict its rank and why, cve_history how its EPSS changed, cve_verdicts the verdicts on a list of "
    "CVEs or on a scanner's report, search_cves the CVEs of a vendor, weakness or due date, and archived_brief the list of a past day. "
    "next_in_kev looks ahead: the 100 CVEs likeliest to be added to KEV within 30 days; next_record shows how past lists fared. "
    "create_watch tells you after each list which CVEs newly fit the criteria of a search.",
    version="0.2.0",
)
LIST_APP = add_app(mcp, "ui://cve/list.html", title="CVEs to fix first", body=(TEMPLATES / "list_app.html").read_text())


@mcp.tool(title="Today's top 3 CVEs", annotations=READ_ONLY, meta=route("GET /v1/brief/teaser", cache=TEASER_CACHE) | free())
async def brief_teaser(site: CveSite = CurrentSite()) -> Teaser:
    """Return the three CVEs to fix first today. Use it to see what the daily list looks like before you unlock it.

    Returns the day of the list and, in rank order, the identifier, vendor, product and severity of each CVE, without
    scores. `full_list` says how to get all 25 with scores, and at what price.
    """
    return _results(site).teaser


@mcp.tool(
    title="Today's 25 CVEs to fix first", annotations=READ_ONLY, app=LIST_APP, meta=route("GET /v1/brief/today") | access(price="0.02")
)
async def top_cves_today(limit: BriefLimit = 25, methodology: WithMethodology = True, site: CveSite = CurrentSite()) -> Brief:
    """Return today's 25 CVEs to fix first, ranked by real-world exploitation. Use it to plan which patches come first.

    Each entry has rank, score (0 to 100) and the points that make it up, KEV status with dates and ransomware use, EPSS,
    severity and CVSS with their source, patch status with its evidence, vendor and product. All 25 are known to be
    exploited. The answer also contains the methodology with its evidence and limits, and the version and age of each
    feed. The list changes once a day: call it once per day. For a CVE that is not listed, call cve_verdict.
    """
    return site.state.shorter.of(_results(site).brief, limit, methodology=methodology)


@mcp.tool(title="CVEs added to KEV in the last 7 days", annotations=READ_ONLY, meta=route("GET /v1/kev/fresh") | access(price="0.01"))
async def kev_fresh(limit: FreshLimit = None, site: CveSite = CurrentSite()) -> FreshList:
    """Return every CVE that CISA added to its Known Exploited Vulnerabilities catalog (KEV) in the last seven days.

    Use it to learn what has newly become exploited. Returns the window and, in rank order, each CVE with its rank and
    score in today's ranked set and the same details as top_cves_today. In a week without additions the list is empty
    and `count` is 0.
    """
    fresh = _results(site).fresh
    return fresh if limit is None or limit >= fresh.count else fresh.model_copy(update={"entries": fresh.entries[:limit]})


@mcp.tool(
    title="Rank and score of one CVE",
    annotations=READ_ONLY,
    output_schema=either(Verdict, Miss),
    meta=route("GET /v1/cve/{cve_id}") | access(price="0.005"),
)
async def cve_verdict(cve_id: CveName, exposed: Exposed = "unknown", site: CveSite = CurrentSite()) -> Verdict | Miss:
    """Return how urgent one CVE is: its rank and score among the more than 360,000 CVEs ranked today, and why.

    Use it to decide on a CVE that you already know. With `found: true` the answer has `when` to fix it and `why`, with the
    deadlines of CISA's directive BOD 26-04, for assets that are exposed to the internet and for others (send `exposed` to
    get one of them), then rank, `of` (how many are ranked), score and its factors, KEV status and dates, EPSS, severity,
    patch status with evidence, vendor and product, and what CISA says of it. With `found: false` it has `miss`: removed
    from KEV, not yet scored, rejected, or unknown. A miss is an answer and costs the same, though cve_facts says it for
    free; a malformed identifier, or a name such as a GHSA for which no CVE is known, is refused and costs nothing.
    """
    cve_id = await the_cve(site.storage, cve_id)
    return verdict_of(await site.state.knowing([cve_id]), cve_id, exposed=exposed, today=site.now().date())


@mcp.tool(title="What one CVE is", annotations=READ_ONLY, meta=route("GET /v1/cve/{cve_id}/facts", cache=TEASER_CACHE) | free())
async def cve_facts(cve_id: CveName, exposed: Exposed = "unknown", site: CveSite = CurrentSite()) -> CveFacts:
    """Return what one vulnerability is, as public sources say it: CISA, EPSS and NVD. Free.

    Use it to explain a CVE, or to learn what CISA demands and until when. `description` is NVD's text; `deadlines` follow from CISA's
    directive BOD 26-04, for assets that are exposed to the internet and for others; `listing` has CISA's name, description,
    required action, due date and ransomware use if it is in KEV; `links` lead to NVD, CVE.org, CISA and the
    vendor. For how urgent it is among all others, with its score and reasons, call cve_verdict; not if `miss` is set, which says why it
    has no rank: rejected, not yet scored, removed from KEV, or unknown.
    """
    cve_id = await the_cve(site.storage, cve_id)
    verdict = _ways_to(site, "cve_verdict", what="Rank and score")
    return await site.state.facts(cve_id, today=site.now().date(), verdict=verdict, exposed=exposed)


@mcp.tool(
    title="History of one CVE",
    annotations=READ_ONLY,
    meta=route("GET /v1/cve/{cve_id}/history", query={"from_day": "from", "to_day": "to"}) | access(price="0.01"),
)
async def cve_history(
    cve_id: CveId, from_day: HistoryFrom = None, to_day: HistoryTo = None, limit: HistoryLimit = 100, site: CveSite = CurrentSite()
) -> CveHistory:
    """Return how the EPSS of one CVE changed since the archive began, and when CISA listed it in KEV or edited it there.

    Use it to see whether a CVE becomes more urgent. `epss` has the score of the first day and each day on which the score or
    the model changed, with the gaps where days are missing; `kev` has what CISA did.
    A window without any stored day, one that ends before it begins, and a CVE that was never scored nor listed are refused
    and cost nothing.
    """
    return await site.state.histories.of(cve_id, first=from_day, last=to_day, limit=limit)


@mcp.tool(
    title="Verdicts on many CVEs, or on a scanner's report",
    annotations=READ_ONLY,
    meta=route("GET|POST /v1/cve/verdicts", body="report", body_limit=LARGEST_TEXT, whole_limit=LARGEST_REPORT) | access(price="0.10"),
)
async def cve_verdicts(
    cve_ids: CveIds = None,
    report: Report = None,
    exposed: Exposed = "unknown",
    exposed_places: ExposedPlaces = [],  # noqa: B006  # pydantic copies it
    limit: FindingsLimit = DEFAULT_LIMIT,
    media_type: str = CurrentFormat(),
    site: CveSite = CurrentSite(),
) -> Verdicts:
    """Put up to 1,000 CVEs, or all findings of a scanner's report, in the order in which to fix them.

    Use it on the output of Trivy, Grype or any other scanner. `accounting` has the number of findings in each bucket: to fix
    today, this week or later, of unknown state, not ranked, not looked up, unreadable, and suppressed, not affected or fixed
    by the report's own word; each finding is in exactly one. `findings` has the first `limit` of them, the first to fix first,
    with package, installed and fixed version, place and what the report says of its state. `verdicts` has their CVEs, or those
    of cve_ids, the best rank first, each with `when` to fix it, the `deadlines` of CISA's directive BOD 26-04 (both, unless
    you send `exposed`), rank, score, KEV status, ransomware use, EPSS, severity, patch status, vendor and product; `misses`
    what is not ranked. What cannot be read, and a list without a CVE, are refused and cost nothing.
    """
    listed = listed_ids(cve_ids)
    read = await site.state.read(report) if report else None
    names, about = await site.state.names_of(listed.others, read) if read or listed.others else ({}, "")
    if read is None and not (listed.ids or any(names.get(each.upper()) for each in listed.others)):
        raise no_ids(listed)
    asked = Asked(
        listed=listed,
        report=read,
        names=names,
        about_names=about,
        exposed=exposed,
        exposed_places=exposed_places,
        limit=limit,
        media_type=media_type,
    )
    return await site.state.verdicts(asked, now=site.now())


@mcp.tool(title="The 25 CVEs of a past day", annotations=READ_ONLY, meta=route("GET /v1/archive/{date}") | access(price="0.05"))
async def archived_brief(
    date: Day, edition: Edition = None, limit: BriefLimit = 25, methodology: WithMethodology = True, site: CveSite = CurrentSite()
) -> Brief:
    """Return the full list of a past day as published then. Use it to compare days or to check an earlier decision.

    Same shape as top_cves_today. A list that was corrected has several editions: without `edition` you get the newest. A
    day without a list is refused, with the range of days in the archive, and costs nothing.
    """
    brief = await site.state.archived(date, edition) if date >= site.settings.archive_start else None
    if brief is None and edition and await site.state.archived(date):
        raise Problem(404, "no_data_for_date", f"the list of {date} has no edition {edition}; leave edition out for the newest")
    if brief is None:
        raise Problem(404, "no_data_for_date", f"there is no list for the date {date}; {await _archived_range(site)}")
    return brief.cut(limit, methodology=methodology)


@mcp.tool(
    title="How many CVEs changed between two days",
    annotations=READ_ONLY,
    meta=route("GET /v1/brief/changes/counts", query={"from_day": "from", "to_day": "to"}) | free(),
)
async def brief_change_counts(from_day: ChangesFrom = None, to_day: ChangesTo = None, site: CveSite = CurrentSite()) -> ChangeCounts:
    """Return how many CVEs entered the list of 25, left it, moved or were edited between two days.

    Use it to learn whether anything changed since you last looked. Without days it compares the newest list with the one
    before. `full_list` says how to get the changes with their reasons, and at what price.
    """
    before, after = await _window(site, from_day, to_day)
    return site.state.comparisons.counts(before, after, full_list=_ways_to(site, "brief_changes", what="Every change with its reasons"))


@mcp.tool(
    title="What changed between two days, and why",
    annotations=READ_ONLY,
    meta=route("GET /v1/brief/changes", query={"from_day": "from", "to_day": "to"}) | access(price="0.02"),
)
async def brief_changes(
    from_day: ChangesFrom = None, to_day: ChangesTo = None, limit: ChangesLimit = 25, site: CveSite = CurrentSite()
) -> Changes:
    """Return which CVEs entered the list of 25, left it, moved or were edited between two days, each with its reasons.

    Use it once a day instead of comparing lists yourself. Each change has both ranks and scores, the points by which each
    factor changed, and reasons: listed or removed by CISA, EPSS rose or fell, displaced by newcomers (which ones), aged,
    ransomware use, due date edited. What only makes room for others or ages like all did not move. Without days it compares
    the newest list with the one before. Days without a list, days before the archive and a window that ends before it
    begins are refused and cost nothing.
    """
    before, after = await _window(site, from_day, to_day)
    return (await site.state.comparisons.changes(before, after)).cut(limit)


@mcp.tool(title="Make an address for feed readers", annotations=WRITES, meta=route("POST /v1/feed-urls") | access())
async def create_feed_url(label: Label = "", site: CveSite = CurrentSite(), caller: Caller = CurrentCaller()) -> FeedMade:
    """Make addresses at which a feed reader, a spreadsheet or a scheduled job reads the full list without sending your key.

    Returns the day's 25 CVEs as JSON Feed, Atom and CSV addresses. Each holds a secret: whoever has it may read, nothing
    else. They work for as long as your key and its renewals last, until revoke_feed_url, or until the key is revoked or
    the client disconnected that made them; keep_feed_url then keeps one. Up to 20 per key.
    """
    return await make_feed_url(site, caller, label, entropy=secrets.token_bytes)


@mcp.tool(title="List your feed addresses", annotations=READ_ONLY, meta=route("GET /v1/feed-urls") | access())
async def list_feed_urls(site: CveSite = CurrentSite(), caller: Caller = CurrentCaller()) -> FeedList:
    """List the feed addresses that your key owns, with who made each, without their secrets. Use it to find one to revoke or keep."""
    return await feed_urls.list_feed_urls(site, lineage=lineage_in(caller))


@mcp.tool(title="Keep a feed address", annotations=SETS, meta=route("POST /v1/feed-urls/{feed_id}/keep") | access())
async def keep_feed_url(feed_id: FeedId, site: CveSite = CurrentSite(), caller: Caller = CurrentCaller()) -> FeedKept:
    """Have a feed address go on that stopped because the client that made it was disconnected, or the key revoked.

    Use it for addresses that you made or still need; its readers get the list again. Whoever has the address reads it: if a
    stranger may have made or seen it, call revoke_feed_url instead and make a new one.
    """
    return await feed_urls.keep_feed_url(site, caller, feed_id)


@mcp.tool(title="Revoke a feed address", annotations=REVOKES, meta=route("DELETE /v1/feed-urls/{feed_id}") | access())
async def revoke_feed_url(feed_id: FeedId, site: CveSite = CurrentSite(), caller: Caller = CurrentCaller()) -> FeedRevoked:
    """End a feed address at once: its readers get 404 from then on. Use it when an address was seen by someone else."""
    return await feed_urls.revoke_feed_url(site.storage, lineage=lineage_in(caller), feed_id=feed_id)


@mcp.tool(title="Next in KEV: the first 3 names", annotations=READ_ONLY, meta=route("GET /v1/next/teaser", cache=TEASER_CACHE) | free())
async def next_teaser(site: CveSite = CurrentSite()) -> ForecastTeaser:
    """Return the first three names of the forecast: the CVEs that are likeliest to be added to KEV within 30 days.

    Returns the identifiers in rank order, with vendor and product where they are known, without scores. `full_list` says
    how to get all 100 with their factors, and at what price. `record` is where past lists are graded.
    """
    return _forecast(site).teaser


@mcp.tool(title="Next in KEV: 100 CVEs to watch", annotations=READ_ONLY, meta=route("GET /v1/next") | access(price="0.02"))
async def next_in_kev(
    date: ForecastDay = None, limit: Limit = 25, methodology: MethodologyToo = False, site: CveSite = CurrentSite()
) -> ForecastList:
    """Return the CVEs that are not in KEV and are likeliest to be added to it within 30 days: 25, or 100 with limit=100.

    Use it to watch and prepare. Each entry has rank, score and the four factors that make it up, EPSS now and a week ago,
    estimated age, vendor and product where NVD names them, and the precision that past lists have had down to its rank. Expect
    about one in a hundred to be added: use top_cves_today to decide what to patch first. `date` returns the list of a past day as it was
    published; a day without a list is refused and costs nothing.
    """
    if date is None:
        return site.state.shorter.of(_forecast(site).forecast, limit, methodology=methodology)
    if found := await load_forecast(site.storage, date):
        return found.cut(limit, methodology=methodology)
    days = await first_and_last_day(site.storage, ArchivedForecast)
    there_are = f"there are forecasts from {days[0]} to {days[1]}" if days else "no forecast has been made yet"
    raise Problem(404, "no_data_for_date", f"there is no forecast for the date {date}; {there_are}")


@mcp.tool(title="Record of past forecasts", annotations=READ_ONLY, meta=route("GET /v1/next/record", cache=TEASER_CACHE) | free())
async def next_record(limit: RecordLimit = 10, methodology: MethodologyToo = False, site: CveSite = CurrentSite()) -> ForecastRecord:
    """Return how past lists fared: the forecast against KEV's later additions, the brief against later ransomware use.

    Use it to judge how far to trust next_in_kev and top_cves_today. For each ranking it has the number of graded lists,
    hits, precision and recall at several depths with intervals, and AUC, next to EPSS alone and two candidates that were
    registered beforehand. Then hits and misses of each list, and the CVEs that came true. Lists made afterwards are apart.
    """
    return site.state.shorter.of(site.state.record(), limit, methodology=methodology)


def _forecast(site: CveSite) -> ForecastAnswers:
    record = f"{site.url}/v1/next/record"
    what = "All 100 CVEs with scores, factors and precision"
    return site.state.forecast(site.now(), full_list=lambda: _ways_to(site, "next_in_kev", what=what), record=record)


async def _window(site: CveSite, from_day: date | None, to_day: date | None) -> tuple[Brief, Brief]:
    newest = edition.day if (edition := site.state.real_edition) else site.now().date()
    return await site.state.comparisons.window(from_day, to_day, start=site.settings.archive_start, newest=newest)


def _results(site: CveSite) -> DayResults:
    what = "All 25 CVEs with scores, factors and methodology"
    return site.state.results(site.now(), full_list=lambda: _ways_to(site, "top_cves_today", what=what))


def _ways_to(site: CveSite, name: str, *, what: str) -> str:
    tool = site.directory.tool(site.name, name)
    if tool is None:
        return "The full list is not available here."
    ways = [f"with a key of scope {tool.key_scope}{_cheapest(site, tool.key_scope)}"] if tool.key_scope else []
    ways += [f"${tool.price} per call"] if tool.price else []
    price = "free" if tool.free else ", or ".join(ways) or "not sold at the moment"
    return f"{what}: {tool.http[0]}, or the MCP tool {tool.name}; {price}."


def _cheapest(site: CveSite, scope: str) -> str:
    prices = [product.price for product in site.directory.products if product.scope in (scope, "all")]
    return f" (from ${min(prices, key=Decimal)})" if prices else ""


async def _archived_range(site: CveSite) -> str:
    start = site.settings.archive_start
    days = await first_and_last_day(site.storage, BriefEdition)
    if days is None or days[1] < start:
        return f"the archive starts on {start} and has no lists yet"
    return f"the archive has lists from {max(days[0], start)} to {days[1]}; days on which no list was made are missing"
