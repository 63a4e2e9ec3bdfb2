"""The CVE building: a daily list (edition) of CVEs ranked by real-world exploitation; its first 25 are the brief, 3 the teaser."""

from datetime import timedelta

from buildings.cve.arguments import PROBLEMS
from buildings.cve.checks import feeds_are_reachable, list_is_fresh, nvd_was_read, stored_lists_add_up
from buildings.cve.latest import latest, reload
from buildings.cve.pages import LIST, REPORT, daily_list, forecast, methodology, report, top_three, verdict
from buildings.cve.reader_feeds import full_feed, public_feed
from buildings.cve.refresh import grade, nvd, refresh
from buildings.cve.server import mcp
from buildings.cve.settings import CveSettings
from buildings.cve.tables import Tables
from campus import Building, Check, Job, Page

building = Building(
    mcp,
    settings=CveSettings,
    tables=Tables,
    state=latest,
    jobs=[
        Job(refresh, daily_at=lambda settings: settings.refresh_at, own_process=True),
        Job(nvd, every=timedelta(hours=1), own_process=True),
        Job(grade),
        Job(reload, every=timedelta(seconds=5), on="each"),
    ],
    checks=[Check(list_is_fresh, on="ready"), Check(feeds_are_reachable), Check(nvd_was_read), Check(stored_lists_add_up, on="audit")],
    problems=PROBLEMS,
    pages=[
        Page(f"GET {LIST}", daily_list, label="CVEs"),
        Page(f"GET {LIST}/next", forecast),
        Page(f"GET|POST {REPORT}", report),
        Page(f"GET {LIST}/methodology", methodology),
        Page(f"GET {LIST}/{{cve_id}}", verdict),
        Page("GET /v1/feeds/{name}", public_feed),
        Page("GET /v1/feeds/{secret}/{name}", full_feed),
    ],
    highlight=top_three,
    tags=("cve", "vulnerabilities", "kev", "epss", "security"),
)
