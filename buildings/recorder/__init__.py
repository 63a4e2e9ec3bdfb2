"""The recorder: monitors agents by heartbeats, alerts when they stop, and stores capsules, the state a replacement resumes from."""

from datetime import timedelta

from buildings.recorder.alerts.acknowledging import acknowledging
from buildings.recorder.beats.hooks import hook
from buildings.recorder.beats.pings import ping_pages
from buildings.recorder.demo import EVERY, beat_demo, demo_card
from buildings.recorder.jobs import follow_keys, tidy
from buildings.recorder.monitors.badges import badge
from buildings.recorder.monitors.credentials import FREE_PAGES
from buildings.recorder.monitors.fleet import monitors_of, read_with_key
from buildings.recorder.monitors.transfer import export
from buildings.recorder.pages import FLEET, act, events, fleet, heard, monitor, monitor_facts, monitor_gauges, monitors_used
from buildings.recorder.problems import PROBLEMS
from buildings.recorder.runtime import (
    EMAIL_PAGES,
    clock_is_steady,
    limits_name_products,
    monitors_have_targets,
    open_runtime,
    watch,
    watches,
)
from buildings.recorder.server import mcp
from buildings.recorder.settings import RecorderSettings
from buildings.recorder.tables import OUTBOX, Tables
from campus import Building, Check, Job, Page, Service
from campus.building import Holdings
from campus.features.alerts import email_pages

building = Building(
    mcp,
    settings=RecorderSettings,
    tables=Tables,
    state=open_runtime,
    services=[Service(watch)],
    jobs=[Job(follow_keys, every=timedelta(minutes=1)), Job(tidy, daily_at="04:10"), Job(beat_demo, every=EVERY)],
    pages=[
        Page(f"GET|POST {FLEET}", fleet, label="Agent monitors"),
        Page(f"GET {FLEET}/events", events),
        Page(f"GET {FLEET}/{{monitor_id}}", monitor),
        Page(f"GET {FLEET}/{{monitor_id}}/heard", heard),
        Page(f"POST {FLEET}/{{monitor_id}}/{{action}}", act),
        Page(f"GET {FREE_PAGES}/{{token}}", monitor),
        Page(f"GET {FREE_PAGES}/{{token}}/heard", heard),
        Page(f"GET {FREE_PAGES}/{{token}}/events", events),
        Page(f"POST {FREE_PAGES}/{{token}}/{{action}}", act),
        Page("POST /v1/recorder/hook/{monitor_id}/{secret}", hook, cross_site=True),
        *ping_pages(),
        Page("GET /v1/recorder/badge/{badge_id}.svg", badge),
        Page("GET /v1/recorder/badge/{badge_id}.json", badge),
        Page("GET /v1/recorder/export", export),
        Page("GET /v1/recorder/read/{read_key}", read_with_key),
        Page("GET /v1/recorder/read/{read_key}/{monitor_id}", read_with_key),
        Page("GET|POST /v1/recorder/acknowledge/{monitor_id}/{epoch}/{token}", acknowledging, cross_site=True),
        *email_pages(EMAIL_PAGES, lambda site: site.state.dispatcher),
    ],
    checks=[
        Check(watches, on="ready"),
        Check(clock_is_steady, on="ready"),
        Check(limits_name_products),
        Check(OUTBOX.targets_are_reached),
        Check(OUTBOX.outbox_adds_up, on="audit"),
        Check(monitors_have_targets, on="audit"),
    ],
    problems=PROBLEMS,
    highlight=demo_card,
    usage=monitors_used,
    includes=lambda settings, product: [
        f"{settings.monitors_for(product):,} monitors on one page",
        "What a dead agent knew, for the one that replaces it",
    ],
    without_key=["One monitor for each webhook that it alerts"],
    tags=("monitoring", "heartbeat", "dead man switch", "agents", "alerts"),
    gives={"alerts": OUTBOX},
    facts=monitor_facts,
    gauges=monitor_gauges,
    holdings=Holdings(monitors_of, what="monitors", stop=False),
)
