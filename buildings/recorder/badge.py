"""The badge of a monitor: a public SVG image of its name and state."""

from functools import partial
from html import escape
from typing import Any

from sqlalchemy import Connection, Row, select

from buildings.recorder.monitors import stored_state
from buildings.recorder.runtime import Here
from buildings.recorder.state_machine import UNWATCHED, shown_state
from buildings.recorder.tables import MONITORS
from campus import Problem, Request, Response, in_snapshot

COLOURS = {"alive": "#067647", "late": "#b54708", "dead": "#b42318", "paused": "#475467"}
CHARACTER_WIDTH = 6.6
BADGE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{name}: {word}">'
    "<title>{name}: {word}</title>"
    '<rect width="{width}" height="20" rx="3" fill="#344054"/><rect x="{left}" width="{right}" height="20" rx="3" fill="{colour}"/>'
    '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11"><text x="6" y="14">{name}</text>'
    '<text x="{text}" y="14">{word}</text></g></svg>'
)
LONGEST_NAME = 40


async def badge(request: Request, site: Here) -> Response:
    """The badge with this id, which cannot be guessed."""
    row = await in_snapshot(site.storage, partial(_by_badge, badge_id=request.path_params["badge_id"]))
    if row is None:
        raise Problem(404, "badge_not_found", "no badge has this address; register_monitor and fleet_status return it as badge_url")
    state = stored_state(row)
    word = "paused" if state.mode in UNWATCHED else shown_state(state, site.state.time.now())
    return Response(badge_svg(row.name, word), media_type="image/svg+xml", headers={"Cache-Control": "public, max-age=30"})


def badge_svg(name: str, word: str) -> str:
    """The badge as SVG; the name comes from a caller and is escaped."""
    short = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    left, right = round(12 + CHARACTER_WIDTH * len(short)), round(12 + CHARACTER_WIDTH * len(word))
    return BADGE.format(name=escape(short), word=word, width=left + right, left=left, right=right, text=left + 6, colour=COLOURS[word])


def _by_badge(connection: Connection, *, badge_id: str) -> Row[Any] | None:
    return connection.execute(select(MONITORS).where(MONITORS.c.badge_id == badge_id)).one_or_none()
