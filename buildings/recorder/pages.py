"""Pages for people: the badge of a monitor, and the links in e-mails."""

import hmac
from datetime import datetime
from functools import partial
from html import escape
from typing import Any

from sqlalchemy import Connection, Row, select, update

from buildings.recorder.monitors import stored_state
from buildings.recorder.runtime import Here
from buildings.recorder.secrets import token_for
from buildings.recorder.state_machine import UNWATCHED, shown_state
from buildings.recorder.tables import ALERTS, MONITORS, TARGETS
from campus import Problem, Request, Response, in_snapshot, in_transaction

COLOURS = {"alive": "#067647", "late": "#b54708", "dead": "#b42318", "paused": "#475467"}
CHARACTER_WIDTH = 6.6
BADGE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{name}: {word}">'
    "<title>{name}: {word}</title>"
    '<rect width="{width}" height="20" rx="3" fill="#344054"/><rect x="{left}" width="{right}" height="20" rx="3" fill="{colour}"/>'
    '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11"><text x="6" y="14">{name}</text>'
    '<text x="{text}" y="14">{word}</text></g></svg>'
)
PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>{title}</title><h1>{title}</h1><p>{text}</p>{form}</html>"
)
FORM = '<form method="post"><button>{label}</button></form>'
PRIVATE = {"Cache-Control": "private, no-store", "Referrer-Policy": "no-referrer", "X-Robots-Tag": "noindex"}
LONGEST_NAME = 40


async def badge(request: Request, site: Here) -> Response:
    """A monitor's name and state as a picture, by an id that nobody guesses."""
    row = await in_snapshot(site.storage, partial(_by_badge, badge_id=request.path_params["badge_id"]))
    if row is None:
        raise Problem(404, "badge_not_found", "no badge has this address; register_monitor and fleet_status return it as badge_url")
    state = stored_state(row)
    word = "paused" if state.mode in UNWATCHED else shown_state(state, site.state.time.now())
    return Response(drawn(row.name, word), media_type="image/svg+xml", headers={"Cache-Control": "public, max-age=30"})


def drawn(name: str, word: str) -> str:
    """The badge as SVG; the name is a stranger's text."""
    short = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    left, right = round(12 + CHARACTER_WIDTH * len(short)), round(12 + CHARACTER_WIDTH * len(word))
    return BADGE.format(name=escape(short), word=word, width=left + right, left=left, right=right, text=left + 6, colour=COLOURS[word])


async def confirm(request: Request, site: Here) -> Response:
    """Asks on GET, for mailboxes follow links by themselves; confirms on POST."""
    target = await _target_of(request, site, "confirm")
    if request.method != "POST":
        return _page("Alerts to this address", f"Send alerts of your monitors to {target.address}?", form="Yes, send them")
    await in_transaction(site.storage, partial(_confirm, target_id=target.id, now=site.state.time.now()))
    site.state.news.ring()
    return _page("Confirmed", f"Alerts are sent to {target.address} from now on. Each has a link that ends them.")


async def unsubscribe(request: Request, site: Here) -> Response:
    """Asks on GET; on POST, as mailboxes send it for List-Unsubscribe too, no alert goes there any more."""
    target = await _target_of(request, site, "unsubscribe")
    if request.method != "POST":
        return _page("No more alerts", f"Send no more alerts to {target.address}?", form="No more alerts")
    await in_transaction(site.storage, partial(_unsubscribe, target_id=target.id, now=site.state.time.now()))
    return _page("Done", f"No alert goes to {target.address} any more.")


async def _target_of(request: Request, site: Here, purpose: str) -> Row[Any]:
    target_id, token = request.path_params["target_id"], request.path_params["token"]
    row = await in_snapshot(
        site.storage, lambda connection: connection.execute(select(TARGETS).where(TARGETS.c.id == target_id)).one_or_none()
    )
    expected = token_for(purpose, row.secret if row else b"")
    if not hmac.compare_digest(expected.encode(), token.encode()) or row is None:
        raise Problem(404, "link_not_found", "this link is not valid; check that it was copied completely")
    return row


def _page(title: str, text: str, *, form: str | None = None) -> Response:
    body = PAGE.format(title=escape(title), text=escape(text), form=FORM.format(label=escape(form)) if form else "")
    return Response(body, media_type="text/html", headers=PRIVATE)


def _by_badge(connection: Connection, *, badge_id: str) -> Row[Any] | None:
    return connection.execute(select(MONITORS).where(MONITORS.c.badge_id == badge_id)).one_or_none()


def _confirm(connection: Connection, *, target_id: str, now: datetime) -> None:
    asked = (ALERTS.c.target_id == target_id) & (ALERTS.c.kind == "confirm")
    connection.execute(ALERTS.delete().where(asked))
    fresh = {"disabled_at": None, "disabled_because": None, "attempts": 0, "failing_since": None, "next_try_at": now, "message_id": None}
    connection.execute(update(TARGETS).where(TARGETS.c.id == target_id).values(verified_at=now, **fresh))


def _unsubscribe(connection: Connection, *, target_id: str, now: datetime) -> None:
    connection.execute(ALERTS.delete().where(ALERTS.c.target_id == target_id))
    gone = {"disabled_at": now, "disabled_because": "its reader unsubscribed", "next_try_at": None, "message_id": None, "verified_at": None}
    connection.execute(update(TARGETS).where(TARGETS.c.id == target_id).values(**gone))
