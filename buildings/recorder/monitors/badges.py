"""Badges: the state of a monitor, or the worst of the monitors with a tag, as an image and as the JSON of shields.io."""

import hmac
from datetime import datetime
from functools import partial
from hashlib import sha256
from html import escape
from typing import Any, NamedTuple
from urllib.parse import quote

from pydantic_core import to_json
from sqlalchemy import Connection, Row, func, select

from buildings.recorder.monitors.credentials import badge_url
from buildings.recorder.monitors.rows import has_tag, state_in_sql
from buildings.recorder.monitors.state_machine import state_in_a_word, stored_state
from buildings.recorder.problems import fixed_problem
from buildings.recorder.runtime import RecorderSite
from buildings.recorder.tables import MONITORS, OWNERS
from campus import Request, Response
from campus.storage import in_snapshot

COLOURS = {
    "dead": "#b42318",
    "stuck": "#b42318",
    "late": "#b54708",
    "waiting": "#475467",
    "alive": "#067647",
    "idle": "#067647",
    "paused": "#475467",
    "unknown": "#475467",
}
"""The words of badges, the worst state first: one that nobody watches says less than one that lives."""
CHARACTER_WIDTH = 6.6
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{name}: {word}">'
    "<title>{name}: {word}</title>"
    '<rect width="{width}" height="20" rx="3" fill="#344054"/><rect x="{left}" width="{right}" height="20" rx="3" fill="{colour}"/>'
    '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11"><text x="6" y="14">{name}</text>'
    '<text x="{text}" y="14">{word}</text></g></svg>'
)
LONGEST_NAME = 40
HEADERS = {"Cache-Control": "public, max-age=30"}


class Badge(NamedTuple):
    name: str
    word: str


async def badge(request: Request, site: RecorderSite) -> Response:
    """The badge of a monitor; with `tag` in the query, that of all monitors of an owner with this tag."""
    badge_id, tag = request.path_params["badge_id"], request.query_params.get("tag")
    read = partial(_of_monitor, badge_id=badge_id) if tag is None else partial(_of_tag, badge_id=badge_id, tag=tag)
    found = await in_snapshot(site.storage, partial(read, now=site.state.time.now()))
    if found is None:
        raise fixed_problem("badge_not_found")
    if request.url.path.endswith(".json"):
        shield = {"schemaVersion": 1, "label": found.name, "message": found.word, "color": COLOURS[found.word]}
        return Response(to_json(shield), media_type="application/json", headers=HEADERS)
    return Response(badge_svg(*found), media_type="image/svg+xml", headers=HEADERS)


def badge_svg(name: str, word: str) -> str:
    """The badge as SVG. The name comes from a caller, so it is escaped."""
    short = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    left = round(12 + CHARACTER_WIDTH * len(short))
    right = round(12 + CHARACTER_WIDTH * len(word))
    return SVG.format(name=escape(short), word=word, width=left + right, left=left, right=right, text=left + 6, colour=COLOURS[word])


def tag_badge_url(url: str, owner: Row[Any], tag: str) -> str:
    """The address of the badge of an owner's tag. Who has it learns of no other tag: each needs the owner's secret."""
    return f"{badge_url(url, f'{owner.badge_id}_{_mark_of(owner, tag)}')}?tag={quote(tag, safe='')}"


def _mark_of(owner: Row[Any], tag: str) -> str:
    return hmac.new(owner.badge_secret, tag.encode(), sha256).hexdigest()[:32]


def _of_monitor(connection: Connection, *, badge_id: str, now: datetime) -> Badge | None:
    row = connection.execute(select(MONITORS).where(MONITORS.c.badge_id == badge_id)).one_or_none()
    return Badge(row.name, state_in_a_word(stored_state(row), now)) if row else None


def _of_tag(connection: Connection, *, badge_id: str, tag: str, now: datetime) -> Badge | None:
    owner_id, _, mark = badge_id.rpartition("_")
    owner = connection.execute(select(OWNERS).where(OWNERS.c.badge_id == owner_id)).one_or_none()
    if owner is None or not hmac.compare_digest(_mark_of(owner, tag).encode(), mark.encode()):
        return None
    tagged = select(func.distinct(state_in_sql(now))).where(MONITORS.c.owner == owner.lineage, has_tag(tag))
    states = set(connection.scalars(tagged))
    return Badge(tag, next((word for word in COLOURS if word in states), "unknown"))
