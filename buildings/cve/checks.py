"""What the building asks itself: is the list fresh, can the feeds be had, does what is stored still add up."""

from collections.abc import Mapping, Sequence
from datetime import date

import anyio.to_thread
import httpx

from buildings.cve.answers import DECIMALS, brief_of
from buildings.cve.edition import listing_days
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.feeds.nvd_pages import smallest_question
from buildings.cve.latest import Here
from buildings.cve.models import Brief
from buildings.cve.ranked_set import RankedSet, ranked
from buildings.cve.ranking import factors_of
from buildings.cve.store import Stored, all_days, failures, load_brief, load_latest, load_leading
from campus import origin_of

GOOD_FOR_DAYS = 1
"""Today's list, or yesterday's until today's is due."""


async def list_is_fresh(site: Here) -> Sequence[str]:
    """Whether a list is shown, how old it is, and why the feeds failed if they did."""
    found = [f"{failure.feed} failed at {failure.at:%Y-%m-%dT%H:%M:%SZ}: {failure.reason}" for failure in await failures(site.storage)]
    edition = site.state.real_edition
    if edition is None:
        return found if site.state.edition else ["no list was made yet; run the job cve.refresh", *found]
    today, issues = site.now().date(), edition.facts.issues
    if issues.is_stale(today):
        found.insert(
            0, f"the feeds stand still (KEV {issues.kev}, EPSS {issues.epss}), and answers say that they are stale; see their addresses"
        )
    days = (today - edition.day).days
    if days > GOOD_FOR_DAYS:
        found.insert(0, f"the list is of {edition.day}, {days} days ago; run the job cve.refresh")
    return found


async def feeds_can_be_had(site: Here) -> Sequence[str]:
    """Whether each feed's address answers with something that could be the feed."""
    settings = site.settings
    addresses = {"kev_url": settings.kev_url, "epss_url": settings.epss_url, "nvd_url": smallest_question(settings.nvd_url)}
    return [sentence for name, url in addresses.items() if (sentence := await _what_is_wrong(site.feeds, name, url))]


async def _what_is_wrong(client: httpx.AsyncClient, setting: str, url: str) -> str | None:
    where = f"{setting}: {origin_of(url)}"
    try:
        async with client.stream("GET", url) as response:
            if not response.is_success:
                return f"{where} answered {response.status_code}; set another address in [buildings.cve] if that stays so"
            if "html" in response.headers.get("content-type", ""):
                return f"{where} answered with an HTML page, which is no feed; set another address in [buildings.cve]"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"{where} cannot be reached ({type(error).__name__}); see the network, or set another address in [buildings.cve]"
    return None


async def stored_lists_add_up(site: Here) -> Sequence[str]:
    """Whether the list on show and every archived brief can be made again from what is stored with them."""
    stored = await load_latest(site.storage)
    found = list(await anyio.to_thread.run_sync(_recomputed, stored)) if stored else []
    for day in await all_days(site.storage):
        brief, leading = await load_brief(site.storage, day), await load_leading(site.storage, day)
        if brief is None or leading is None:
            found.append(f"the archive of {day} lacks its ranked set")
        else:
            found += _differences(day, brief, *leading)
    return found


def _recomputed(stored: Stored) -> list[str]:
    edition, remedy = stored.edition, "run the job cve.refresh"
    found = []
    if ranked(edition.epss.scores, listing_days(edition.facts.kev), day=edition.day) != edition.ranked:
        found.append(f"the stored ranks of {edition.day} are not those of its KEV and EPSS; {remedy}")
    if brief_of(edition, today=edition.day).entries != stored.brief.entries:
        found.append(f"the brief of {edition.day} is not the one that its ranked set gives; {remedy}")
    return found


def _differences(day: date, brief: Brief, leading: RankedSet, kev: Mapping[str, KevEntry]) -> list[str]:
    """The entries of an archived brief that the day's stored set does not bear out."""
    found = []
    for entry in brief.entries:
        standing, listing = leading.find(entry.cve_id), kev.get(entry.cve_id)
        added = listing.date_added if listing else None
        if standing is None or (standing.rank, standing.epss, added) != (entry.rank, entry.epss, entry.kev_date_added):
            found.append(f"the brief of {day} gives {entry.cve_id} another place than its archived set; restore a backup")
        elif round(factors_of(epss=standing.epss, added=added, day=day).score, DECIMALS) != entry.score:
            found.append(f"the brief of {day} gives {entry.cve_id} a score that its own figures do not make; restore a backup")
    return found
