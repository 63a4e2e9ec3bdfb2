"""The tool search_cves, on the server of the building."""

from functools import partial
from typing import Any

import anyio.to_thread
from sqlalchemy import Connection

from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.latest import CveSite
from buildings.cve.ranking.results import about
from buildings.cve.search.criteria import LEAST_RISE, Criteria, takes_criteria
from buildings.cve.search.models import FoundCves, Limit, Offset, Sort
from buildings.cve.search.queries import Page, days_of, found_of, page_of
from buildings.cve.search.unknown import notes_on
from buildings.cve.server import READ_ONLY, mcp
from campus import CurrentSite, access, route
from campus.storage import in_snapshot

FOUND_AT_ONCE = 200  # More are made in a worker thread, so that no other call waits for them.
SAMPLE = "There is no list yet: the search begins with the first list that is made from the feeds."
NOT_READ = "NVD's records were not all read yet: of some CVEs products, weaknesses, severity, SSVC and descriptions are missing here."
NO_WEEK = "EPSS of a week before is not stored, or is of another model: rises are not known yet."

__all__ = ["mcp", "search_cves"]


@mcp.tool(title="Search the ranked CVEs", annotations=READ_ONLY, meta=route("GET /v1/cves") | access(price="0.01"))
@takes_criteria
async def search_cves(
    sort: Sort = "rank", limit: Limit = 25, offset: Offset = 0, site: CveSite = CurrentSite(), **criteria: Any
) -> FoundCves:
    """Find CVEs among all that are ranked, by what they affect, how bad they are and how soon they are due.

    Use it for a question about many CVEs: all of KEV of a vendor (vendors, kev), what is due this week (due_days=7, sort=due),
    the greatest rises of EPSS (sort=rise), ransomware of the last 30 days (ransomware, kev_days=30). Vendors, products, packages
    and cve_ids widen the search: one of them is enough. Every other criterion narrows it. Without any you page through the whole
    list. Returns the number that fit, and short entries in the order of `sort`; `next` is the offset of the rest. For one CVE call
    cve_verdict; to be told of new ones make a watch of the same criteria with create_watch. Over HTTP, Accept: text/csv or
    text/markdown selects that format.
    """
    edition = site.state.shown()
    sought = Criteria.model_validate(criteria)
    if edition.is_sample:
        return _answer(edition, site, sought, Page(0, ()), offset, [SAMPLE])
    if sort == "rise" and sought.least_rise is None:
        sought = sought.model_copy(update={"least_rise": LEAST_RISE})

    def work(connection: Connection) -> tuple[Page, list[str]]:
        days = days_of(connection, edition, today=site.now().date())
        page = page_of(connection, sought, days, sort=sort, limit=limit, offset=offset)
        notes = notes_on(connection, sought, days, edition.facts.kev)
        return page, notes + ([NO_WEEK] if sought.least_rise is not None and days.week_before is None else [])

    async with site.state.searches:
        page, notes = await in_snapshot(site.storage, work)
    notes += [] if edition.nvd.is_complete else [NOT_READ]
    answer = partial(_answer, edition, site, sought, page, offset, notes)
    return answer() if len(page.rows) <= FOUND_AT_ONCE else await anyio.to_thread.run_sync(answer)


def _answer(edition: Edition, site: CveSite, sought: Criteria, page: Page, offset: int, notes: list[str]) -> FoundCves:
    end = offset + len(page.rows)
    return FoundCves(
        **about(edition),
        stale=edition.facts.issues.is_stale(site.now().date()),
        criteria=sought.sentences(),
        total=page.total,
        count=len(page.rows),
        next=end if page.rows and end < page.total else None,
        notes=tuple(notes),
        entries=tuple(map(found_of, page.rows)),
    )
