"""The checks of the CVE building: the list is fresh, feeds and targets can be reached, what is stored adds up; and facts of feeds."""

from collections.abc import Mapping, Sequence
from datetime import date

import anyio.to_thread
import httpx

from buildings.cve.archive.editions import load_leading
from buildings.cve.archive.lists import StoredList, all_days, failures, load_brief, load_latest
from buildings.cve.feeds.download import answer_of
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.feeds.nvd_pages import smallest_request
from buildings.cve.feeds.vocabulary import NEWS_FOR, sentence_of, unknown_words
from buildings.cve.models import Brief, Entry
from buildings.cve.names.osv import address_of
from buildings.cve.names.store import STALE_NAMES, ecosystem_states, names_in_words
from buildings.cve.nvd.reading import load_progress
from buildings.cve.ranking.edition import is_ahead, listing_days
from buildings.cve.ranking.formula import RankedCve, factors_of, ranked
from buildings.cve.ranking.latest import CveSite
from buildings.cve.ranking.results import DECIMALS, brief_of
from campus.observability import origin_of, utc_text

MAX_LIST_AGE_DAYS = 1  # Yesterday's list is good until today's is due.


async def list_is_fresh(site: CveSite) -> Sequence[str]:
    """What is wrong with the list that is served: missing, too old, or made from feeds that failed or stopped changing."""
    found = [f"{failure.feed} failed at {utc_text(failure.at)}: {failure.reason}" for failure in await failures(site.storage)]
    edition = site.state.real_edition
    if edition is None:
        return found if site.state.edition else ["no list has been made yet; run the job cve.refresh", *found]
    today = site.now().date()
    issues = edition.facts.issues
    if issues.is_stale(today):
        found.insert(
            0, f"the feeds have stopped changing (KEV {issues.kev}, EPSS {issues.epss}) and answers are marked stale; check their addresses"
        )
    for feed, issue in (("KEV", issues.kev), ("EPSS", issues.epss)):
        if issue.unreadable:
            found.append(f"{feed} {issue} has parts that cannot be read, and are left out: {'; '.join(issue.unreadable)}")
    days = (today - edition.day).days
    if is_ahead(edition.day, today=today):
        found.insert(0, f"the list is of {edition.day}, which is in the future: the clock was wrong; run the job cve.refresh")
    if days > MAX_LIST_AGE_DAYS:
        found.insert(0, f"the list is of {edition.day}, {days} days ago; run the job cve.refresh")
    return found


async def feed_gauges(site: CveSite) -> Mapping[tuple[str, str], Mapping[str, float]]:
    """When the list that is served was made, and when the feeds that it was made from were issued, as seconds since 1970.

    That of OSV is when the names of its ecosystems were last read: of the one that was read first.
    """
    edition = site.state.edition
    if edition is None:
        return {}
    issues = edition.facts.issues
    times = {"list": edition.made_at, "KEV": issues.kev.issued, "EPSS": issues.epss.issued}
    if states := await ecosystem_states(site.storage):
        times["OSV"] = min(read.read_at for read, _ in states)
    return {("issued_timestamp_seconds", "part"): {part: at.timestamp() for part, at in times.items()}}


async def feed_facts(site: CveSite) -> Mapping[str, str]:
    edition = site.state.edition
    progress = await load_progress(site.storage)
    if edition is None:
        return {"list": "none yet"}
    issues = edition.facts.issues
    position = progress.position
    reading = f", {position.start:,} of {position.total:,} read" if position and position.phase != "changes" and position.total else ""
    held = {failure.feed: f"; held because {failure.reason}" for failure in await failures(site.storage)}
    return {
        "list": f"{'the sample' if edition.is_sample else edition.day}, made {edition.made_at:%Y-%m-%d %H:%M} UTC",
        "KEV": f"issued {issues.kev.issued:%Y-%m-%d %H:%M} UTC, {len(edition.facts.kev):,} entries{held.get('KEV', '')}",
        "EPSS": f"issued {issues.epss.issued:%Y-%m-%d %H:%M} UTC, {len(edition.ranked):,} CVEs ranked{held.get('EPSS', '')}",
        "NVD": f"{progress.entries:,} records{reading}",
        "names": names_in_words(await ecosystem_states(site.storage)),
        **{f"word {place}": sentence_of(word) for place, word in enumerate(await unknown_words(site.storage), 1)},
    }


async def nvd_was_read(site: CveSite) -> Sequence[str]:
    progress = await load_progress(site.storage)
    position = progress.position
    if position is None or position.phase == "changes":
        return []
    of = f" of {position.total:,}" if position.phase == "all" and position.total else ""
    return [f"NVD's records are being read for the first time, {position.start:,}{of} so far; until then verdicts may say not_read"]


async def names_are_fresh(site: CveSite) -> Sequence[str]:
    """Which ecosystems of OSV were not read for days; why the last reading failed says list_is_fresh."""
    now = site.now()
    return [
        f"OSV's {read.ecosystem} was last read on {read.read_at:%Y-%m-%d}; run the job cve.names, or remove it from osv_ecosystems"
        for read, _ in await ecosystem_states(site.storage)
        if now - read.read_at > STALE_NAMES and read.ecosystem in site.settings.osv_ecosystems
    ]


async def words_are_known(site: CveSite) -> Sequence[str]:
    """The words of feeds that are not known, for a week from the day on which they were first seen."""
    today = site.now().date()
    return [sentence_of(word) for word in await unknown_words(site.storage) if today - word.first_day < NEWS_FOR]


async def feeds_are_reachable(site: CveSite) -> Sequence[str]:
    settings = site.settings
    addresses = {"kev_url": settings.kev_url, "epss_url": settings.epss_url, "nvd_url": smallest_request(settings.nvd_url)}
    if settings.osv_ecosystems:
        addresses["osv_url"] = address_of(settings.osv_url, settings.osv_ecosystems[0], "modified_id.csv")
    return [sentence for name, url in addresses.items() if (sentence := await _fault_of(site.feeds, name, url))]


async def _fault_of(client: httpx.AsyncClient, setting: str, url: str) -> str | None:
    where = f"{setting}: {origin_of(url)}"
    try:
        async with client.stream("GET", url) as response:
            if not response.is_success:
                return f"{setting}: {answer_of(url, response.status_code)}; if this continues, set another address in [buildings.cve]"
            if "html" in response.headers.get("content-type", ""):
                return f"{where} answered with an HTML page instead of a feed; set another address in [buildings.cve]"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"{where} cannot be reached ({type(error).__name__}); check the network, or set another address in [buildings.cve]"
    return None


async def stored_lists_add_up(site: CveSite) -> Sequence[str]:
    stored = await load_latest(site.storage)
    found = list(await anyio.to_thread.run_sync(_recomputed, stored)) if stored else []
    for day in await all_days(site.storage):
        brief = await load_brief(site.storage, day)
        leading = await load_leading(site.storage, day)
        if brief is None or leading is None:
            found.append(f"the archive of {day} has no ranked set")
        else:
            found += _differences(day, brief, *leading)
    return found


def _recomputed(stored: StoredList) -> list[str]:
    edition = stored.edition
    remedy = "run the job cve.refresh"
    found = []
    scores, left_out = edition.epss.scores, edition.ranked.left_out()
    if ranked(scores, listing_days(edition.facts.kev), day=edition.day, left_out=left_out) != edition.ranked:
        found.append(f"the stored ranks of {edition.day} differ from those computed from its KEV and EPSS; {remedy}")
    made = brief_of(edition, today=edition.day).entries
    if [_ranking(entry) for entry in made] != [_ranking(entry) for entry in stored.brief.entries]:
        found.append(f"the brief of {edition.day} differs from the one computed from its ranked set; {remedy}")
    return found


def _ranking(entry: Entry) -> tuple[object, ...]:
    """The members of an entry that follow from KEV and EPSS: NVD's records change after a list was published."""
    return entry.rank, entry.cve_id, entry.score, entry.epss, entry.kev_date_added, entry.kev_due_date, entry.ransomware


def _differences(day: date, brief: Brief, leading: Mapping[str, RankedCve], kev: Mapping[str, KevEntry]) -> list[str]:
    found = []
    for entry in brief.entries:
        cve = leading.get(entry.cve_id)
        listing = kev.get(entry.cve_id)
        added = listing.listed_by if listing else None
        if cve is None or (cve.rank, cve.epss, added) != (entry.rank, entry.epss, entry.kev_date_added or entry.kev_first_release):
            found.append(f"the brief of {day} ranks {entry.cve_id} differently from its archived set; restore a backup")
        elif round(factors_of(epss=cve.epss, added=added, day=day).score, DECIMALS) != entry.score:
            found.append(f"the score of {entry.cve_id} in the brief of {day} does not follow from its own factors; restore a backup")
    return found
