"""The MCP server of the daily list: five tools, and their HTTP routes and prices."""

from decimal import Decimal

from fastmcp import FastMCP

from buildings.cve.arguments import CveId, Day
from buildings.cve.latest import CveSite, DayResults
from buildings.cve.models import Brief, FreshList, Miss, Teaser, Verdict, either
from buildings.cve.store import archived_days
from campus import CurrentSite, Problem, access, free, route

READ_ONLY = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
TEASER_CACHE = "public, max-age=300, stale-if-error=86400"

mcp = FastMCP(
    "Daily CVE prioritization",
    instructions="Which vulnerabilities to fix first: once a day all CVEs are ranked by known exploitation (CISA KEV), the probability of "
    "exploitation (EPSS) and the days since the KEV listing. Start with brief_teaser, the top three. top_cves_today returns the day's list "
    "of 25 with its methodology, kev_fresh the week's additions to KEV, cve_verdict the rank of one CVE and why, and archived_brief the "
    "list of a past day.",
)


@mcp.tool(title="Today's top 3 CVEs", annotations=READ_ONLY, meta=route("GET /v1/brief/teaser", cache=TEASER_CACHE) | free())
async def brief_teaser(site: CveSite = CurrentSite()) -> Teaser:
    """Return the three CVEs to fix first today. Use it to see what the daily list looks like before you unlock it.

    Returns the day of the list and, in rank order, the identifier, vendor, product and severity of each CVE, without
    scores. `full_list` says how to get all 25 with scores, and at what price.
    """
    return _results(site).teaser


@mcp.tool(title="Today's 25 CVEs to fix first", annotations=READ_ONLY, meta=route("GET /v1/brief/today") | access(price="0.02"))
async def top_cves_today(site: CveSite = CurrentSite()) -> Brief:
    """Return today's 25 CVEs to fix first, ranked by real-world exploitation. Use it to plan which patches come first.

    Each entry has rank, score (0 to 100) and the points that make it up, KEV status with dates and ransomware use, EPSS,
    severity and CVSS with their source, patch status with its evidence, vendor and product. All 25 are known to be
    exploited. The answer also contains the methodology with its evidence and limits, and the version and age of each
    feed. The list changes once a day: call it once per day. For a CVE that is not listed, call cve_verdict.
    """
    return _results(site).brief


@mcp.tool(title="CVEs added to KEV in the last 7 days", annotations=READ_ONLY, meta=route("GET /v1/kev/fresh") | access(price="0.01"))
async def kev_fresh(site: CveSite = CurrentSite()) -> FreshList:
    """Return every CVE that CISA added to its Known Exploited Vulnerabilities catalog (KEV) in the last seven days.

    Use it to learn what has newly become exploited. Returns the window and, in rank order, each CVE with its rank and
    score in today's ranked set and the same details as top_cves_today. In a week without additions the list is empty
    and `count` is 0.
    """
    return _results(site).fresh


@mcp.tool(
    title="Rank and score of one CVE",
    annotations=READ_ONLY,
    output_schema=either(Verdict, Miss),
    meta=route("GET /v1/cve/{cve_id}") | access(price="0.005"),
)
async def cve_verdict(cve_id: CveId, site: CveSite = CurrentSite()) -> Verdict | Miss:
    """Return how urgent one CVE is: its rank and score among the more than 360,000 CVEs ranked today, and why.

    Use it to decide on a CVE that you already know. With `found: true` the answer has rank, `of` (how many are ranked),
    score and its factors, KEV status and dates, EPSS, severity, patch status with evidence, vendor and product. With
    `found: false` it has `miss`: removed from KEV, not yet scored, rejected, or unknown. A miss is an answer and costs
    the same; a malformed identifier is refused and costs nothing.
    """
    return site.state.verdict(cve_id, now=site.now())


@mcp.tool(title="The 25 CVEs of a past day", annotations=READ_ONLY, meta=route("GET /v1/archive/{date}") | access(price="0.05"))
async def archived_brief(date: Day, site: CveSite = CurrentSite()) -> Brief:
    """Return the full list of a past day as published then. Use it to compare days or to check an earlier decision.

    Same shape as top_cves_today. A day without a list is refused, with the range of days in the archive, and costs
    nothing.
    """
    brief = await site.state.archived(date) if date >= site.settings.archive_start else None
    if brief is None:
        raise Problem(404, "no_data_for_date", f"there is no list for the date {date}; {await _archived_range(site)}")
    return brief


def _results(site: CveSite) -> DayResults:
    return site.state.results(site.now(), full_list=lambda: _full_list(site))


def _full_list(site: CveSite) -> str:
    """How to get the full list and at what price, as the operator set it."""
    tool = site.directory.tool(site.name, "top_cves_today")
    if tool is None:
        return "The full list is not available here."
    ways = [f"with a key of scope {tool.key_scope}{_cheapest(site, tool.key_scope)}"] if tool.key_scope else []
    ways += [f"${tool.price} per call"] if tool.price else []
    price = "free" if tool.free else ", or ".join(ways) or "not sold at the moment"
    return f"All 25 CVEs with scores, factors and methodology: {tool.http[0]}, or the MCP tool {tool.name}; {price}."


def _cheapest(site: CveSite, scope: str) -> str:
    """The price of the cheapest key of the scope, or of all."""
    prices = [one.price for one in site.directory.products if one.scope in (scope, "all")]
    return f" (from ${min(prices, key=Decimal)})" if prices else ""


async def _archived_range(site: CveSite) -> str:
    start, days = site.settings.archive_start, await archived_days(site.storage)
    if days is None or days[1] < start:
        return f"the archive starts on {start} and has no lists yet"
    return f"the archive has lists from {max(days[0], start)} to {days[1]}; days on which no list was made are missing"
