"""The MCP server of the daily list: five tools, and their HTTP routes and prices."""

from fastmcp import FastMCP

from buildings.cve.arguments import CveId, Day
from buildings.cve.latest import Answers, Here
from buildings.cve.models import Brief, FreshList, Miss, Teaser, Verdict, either
from buildings.cve.store import archived_days
from campus import CurrentSite, Problem, access, free, route

READ_ONLY = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
TEASER_CACHE = "public, max-age=300, stale-if-error=86400"

mcp = FastMCP(
    "Daily CVE prioritization",
    instructions="Which vulnerabilities to fix first: every day all CVEs are ranked by known exploitation (CISA KEV), the probability of "
    "exploitation (EPSS) and days since the KEV listing. Begin with brief_teaser, which is free; top_cves_today is the day's list of 25 "
    "with its methodology, kev_fresh the week's additions to KEV, cve_verdict one CVE's rank and why, archived_brief a past day's list.",
)


@mcp.tool(title="Today's top three", annotations=READ_ONLY, meta=route("GET /v1/brief/teaser", cache=TEASER_CACHE) | free())
async def brief_teaser(site: Here = CurrentSite()) -> Teaser:
    """The three CVEs that matter most today, free.

    Gives the day of the list and, in rank order, each CVE's identifier, vendor, product and severity, without scores;
    `full_list` says where all 25 are had with scores, and for how much.
    """
    return _answers(site).teaser


@mcp.tool(title="Today's 25", annotations=READ_ONLY, meta=route("GET /v1/brief/today") | access(price="0.02"))
async def top_cves_today(site: Here = CurrentSite()) -> Brief:
    """Today's 25 CVEs to fix first, ranked by real-world exploitation.

    Each entry has rank, score (0 to 100) and the points it is made of, KEV status with dates and ransomware use, EPSS,
    severity and CVSS with their source, patch status with its evidence, vendor and product. The answer also has the
    methodology with its evidence and limits, and each feed's version and age. All 25 are known to be exploited.
    """
    return _answers(site).brief


@mcp.tool(title="New in KEV", annotations=READ_ONLY, meta=route("GET /v1/kev/fresh") | access(price="0.01"))
async def kev_fresh(site: Here = CurrentSite()) -> FreshList:
    """Every CVE that CISA added to its catalog of known exploited vulnerabilities (KEV) in the last seven days.

    Gives the window and, in rank order, each CVE with rank and score in today's ranked set and the same details as
    top_cves_today. Some weeks bring none: the list is then empty, and `count` is 0.
    """
    return _answers(site).fresh


@mcp.tool(
    title="One CVE's verdict",
    annotations=READ_ONLY,
    output_schema=either(Verdict, Miss),
    meta=route("GET /v1/cve/{cve_id}") | access(price="0.005"),
)
async def cve_verdict(cve_id: CveId, site: Here = CurrentSite()) -> Verdict | Miss:
    """How urgent one CVE is: its rank and score among all 360,000 and more that are ranked today, and why.

    With `found: true` come rank, of how many, score and its factors, KEV status and dates, EPSS, severity, patch status
    with evidence, vendor and product. With `found: false` comes `miss`: whether it was removed from KEV, is not yet
    scored, was rejected, or is unknown. A miss is an answer and is charged like one; a malformed identifier is refused
    and costs nothing.
    """
    return site.state.verdict(cve_id, now=site.now())


@mcp.tool(title="A past day's 25", annotations=READ_ONLY, meta=route("GET /v1/archive/{date}") | access(price="0.05"))
async def archived_brief(date: Day, site: Here = CurrentSite()) -> Brief:
    """The full list of a past day as it was published: what top_cves_today said then.

    A day without a list, or before the archive begins, is refused with the days that there are and costs nothing.
    """
    brief = await site.state.archived(date) if date >= site.settings.archive_start else None
    if brief is None:
        raise Problem(404, "no_data_for_date", f"there is no list of {date}; {await _what_there_is(site)}")
    return brief


def _answers(site: Here) -> Answers:
    return site.state.answers(site.now(), full_list=lambda: _full_list(site))


def _full_list(site: Here) -> str:
    """Where the full list is had and at what price, as the operator set it."""
    tool = site.directory.tool(site.name, "top_cves_today")
    if tool is None:
        return "The full list is not offered here."
    ways = ["free"] if tool.free else [f"${tool.price} per call"] if tool.price else []
    ways += [f"with a key of scope {tool.key_scope}"] if tool.key_scope and not tool.free else []
    return f"All 25 with scores, factors and methodology: {tool.http[0]} or the MCP tool {tool.name}, {' or '.join(ways)}."


async def _what_there_is(site: Here) -> str:
    start, days = site.settings.archive_start, await archived_days(site.storage)
    if days is None or days[1] < start:
        return f"the archive begins on {start} and is empty so far"
    return f"there are lists from {max(days[0], start)} to {days[1]}, one for each day on which one was made"
