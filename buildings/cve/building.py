"""What the building has: its tools, jobs, checks, pages and tables, put together for campus."""

from datetime import timedelta

from buildings.cve.arguments import PROBLEMS
from buildings.cve.checks import (
    feed_facts,
    feed_gauges,
    feeds_are_reachable,
    list_is_fresh,
    names_are_fresh,
    nvd_was_read,
    stored_lists_add_up,
    words_are_known,
)
from buildings.cve.names.reading import names
from buildings.cve.pages.lists import LIST, VENDORS, daily_list, forecast, methodology, verdict
from buildings.cve.pages.reader_feeds import full_feed, public_feed
from buildings.cve.pages.reports import REPORT, report, start
from buildings.cve.pages.vendors import all_vendors, one_vendor
from buildings.cve.ranking.latest import latest, reload
from buildings.cve.refresh import grade, nvd, pause_watches, refresh
from buildings.cve.settings import CveSettings
from buildings.cve.tables import OUTBOX, Tables
from buildings.cve.watches.alerts import EMAIL_PAGES, deliver
from buildings.cve.watches.models import MOST_WATCHES
from buildings.cve.watches.pages import WATCHES, feeds_and_watches, remove_watch, show_watches, watches_used
from buildings.cve.watches.tools import mcp
from campus import Building, Check, Job, Page, Service
from campus.building import Holdings
from campus.features.alerts import email_pages

building = Building(
    mcp,
    settings=CveSettings,
    tables=Tables,
    state=latest,
    jobs=[
        Job(refresh, daily_at=lambda settings: settings.refresh_at, own_process=True),
        Job(nvd, every=timedelta(hours=1), own_process=True),
        Job(names, every=timedelta(hours=6), own_process=True),
        Job(grade),
        Job(pause_watches, every=timedelta(minutes=1)),
        Job(reload, every=timedelta(seconds=5), on="each"),
    ],
    services=[Service(deliver)],
    checks=[
        Check(list_is_fresh, on="ready"),
        Check(feeds_are_reachable),
        Check(nvd_was_read),
        Check(names_are_fresh),
        Check(words_are_known),
        Check(OUTBOX.targets_are_reached),
        Check(stored_lists_add_up, on="audit"),
        Check(OUTBOX.outbox_adds_up, on="audit"),
    ],
    problems=PROBLEMS,
    pages=[
        Page(f"GET {LIST}", daily_list, label="What to patch"),
        Page(f"GET {LIST}/next", forecast),
        Page(f"GET|POST {REPORT}", report, repeats=True),
        Page(f"GET {LIST}/methodology", methodology),
        Page(f"GET {VENDORS}", all_vendors),
        Page(f"GET {VENDORS}/{{name}}", one_vendor),
        Page(f"GET|POST {WATCHES}", show_watches),
        Page(f"POST {WATCHES}/{{watch_id}}/delete", remove_watch),
        *email_pages(EMAIL_PAGES, lambda site: site.state.watching.dispatcher),
        Page(f"GET {LIST}/{{cve_id}}", verdict),
        Page("GET /v1/feeds/{name}", public_feed),
        Page("GET /v1/feeds/{secret}/{name}", full_feed),
    ],
    highlight=start,
    usage=watches_used,
    includes=[
        "The list of 25 CVEs of each day, with reasons",
        "Your scanners' reports, in the order in which to fix them",
        f"{MOST_WATCHES} watches that tell what newly matters to you",
    ],
    without_key=[
        "What to fix first of a few reports a day",
        "What any CVE is, when to fix it, and its deadline",
        "Feeds of what attackers newly use",
    ],
    holdings=Holdings(feeds_and_watches, what="feed addresses and watches"),
    tags=("cve", "vulnerabilities", "kev", "epss", "security"),
    gives={"alerts": OUTBOX},
    facts=feed_facts,
    gauges=feed_gauges,
)
