"""Beats at the addresses of Healthchecks, for its clients: /ping/<uuid>, and /ping/<ping key>/<slug>, which may create the monitor.

Requests are read as at the address of beats, and answers are the plain texts that those clients know. Nothing tells whether a UUID, a key
or a slug is the wrong one. A UUID follows from the monitor's secret, so that a new secret ends it too.
"""

from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, insert, select, update
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse

from buildings.recorder.arguments import is_slug
from buildings.recorder.beats.beat import Unstored
from buildings.recorder.beats.dialects import Said, read_signal
from buildings.recorder.beats.runs import OUTPUT_BYTES
from buildings.recorder.monitors.credentials import digests_of, new_secret
from buildings.recorder.monitors.keys import most_monitors, stored_key
from buildings.recorder.monitors.registration import new_row
from buildings.recorder.monitors.state_machine import Schedule, initial_state
from buildings.recorder.problems import fixed_problem
from buildings.recorder.runtime import RecorderSite
from buildings.recorder.tables import MONITOR_TARGETS, MONITORS, OWNERS, TARGETS
from campus import Page, Problem, Request, Response
from campus.secrets import Entropy, digest_of, random_id
from campus.storage import in_snapshot, in_transaction
from twins import ClientDisconnectedError

PATHS = ("/ping/{code}", "/ping/{code}/{rest}", "/ping/{code}/{rest}/{signal}")
CREATED = Schedule(timedelta(days=1), timedelta(hours=1))
"""Of a monitor that a ping creates, as Healthchecks has it."""
HEADERS = {"Ping-Body-Limit": str(OUTPUT_BYTES), "Cache-Control": "no-store"}
WORDS = {404: "not found", 429: "rate limited"}


def ping_pages() -> list[Page]:
    """The page of every path, with and without a slash at its end."""
    return [Page(f"GET|POST|PUT|PATCH|DELETE {path}{end}", ping, cross_site=True, any_body=True) for path in PATHS for end in ("", "/")]


async def ping(request: Request, site: RecorderSite) -> Response:
    """Record a beat. The answer is OK, or Created, and says what was ignored."""
    try:
        return await _recorded(request, site)
    except ClientDisconnectedError:
        raise ClientDisconnect from None
    except Problem as refused:
        status, headers = refused.status, refused.headers
        if status == 404 and not site.state.wrong_pings.take((await site.caller(request)).network, site.state.time.now()):
            status, headers = 429, {"Retry-After": "60"}
        return PlainTextResponse(WORDS.get(status, refused.detail), status, headers={**HEADERS, **(headers or {})})


async def _recorded(request: Request, site: RecorderSite) -> Response:
    code: str = request.path_params["code"]
    rest, said = map(request.path_params.get, ("rest", "signal"))
    digest = _uuid_digest(code) if said is None else None
    slug, signal = (None, rest) if digest else (rest or "", said)
    key = None if slug is None else await stored_key(site, code, "ping")
    found = await in_snapshot(site.storage, partial(_find, digest=digest, key=key, slug=slug))
    may_create = key is not None and request.query_params.get("create") == "1"
    if found is None and not may_create:  # before its body is read, which may be large
        raise fixed_problem("monitor_not_found")
    read = await read_signal(request.scope, request.receive, signal, dict(request.scope["headers"]))
    now, status = site.state.time.now(), 200
    if found is None and key is not None:
        work = partial(_create, key=key, slug=slug or "", most=await most_monitors(site, key), now=now, entropy=site.state.entropy)
        found, status = await in_transaction(site.storage, work), 201
    if found is None:
        raise fixed_problem("monitor_not_found")
    beat = Said(**read.arguments).beat(found.id, found.secret_digest, now)
    await site.state.beat(beat)
    ignored = [each for each in read.ignored if not each.startswith("create:")]
    if isinstance(beat.capsule, Unstored):
        ignored.append(f"capsule: {beat.capsule.reason}")
    return PlainTextResponse("\nignored: ".join(("Created" if status == 201 else "OK", *ignored)), status, headers=HEADERS)


def _uuid_digest(code: str) -> bytes | None:
    try:
        return digest_of(str(UUID(code)))
    except ValueError:
        return None


def _find(connection: Connection, *, digest: bytes | None = None, key: Row[Any] | None = None, slug: str | None) -> Row[Any, Any] | None:
    """Id and digest of the secret of the monitor with this UUID; or with a slug, of the owner of a ping key."""
    chosen = select(MONITORS.c.id, MONITORS.c.secret_digest)
    if digest is not None:
        return connection.execute(chosen.where(MONITORS.c.ping_digest == digest)).one_or_none()
    if key is None or slug is None or not is_slug(slug):
        return None
    return connection.execute(chosen.where(MONITORS.c.owner == key.owner, MONITORS.c.slug == slug)).one_or_none()


def _create(connection: Connection, *, key: Row[Any], slug: str, most: int, now: datetime, entropy: Entropy) -> Row[Any, Any] | None:
    """Create the monitor with this slug for the owner of a ping key: it alerts all targets of the owner. None for a wrong slug."""
    if not is_slug(slug):
        return None
    owners = OWNERS.c
    of_owner = update(OWNERS).where(owners.lineage == key.owner)
    has_room = (owners.monitors < most) & (owners.ends_at > now)
    if not connection.execute(of_owner.where(has_room).values(monitors=owners.monitors + 1).returning(owners.monitors)).all():
        raise Problem(409, "monitor_limit_reached", "not created: the key has all the monitors that it may have, or has expired")
    if (made := _find(connection, key=key, slug=slug)) is not None:  # by another ping, before the row of the owner was ours
        connection.execute(of_owner.values(monitors=owners.monitors - 1))
        return made
    targets = connection.scalars(select(TARGETS.c.id).where(TARGETS.c.owner == key.owner).order_by(TARGETS.c.id)).all()
    if not targets:
        raise Problem(409, "no_target_ready", "not created: the key has no alert target yet; register one monitor with it first")
    monitor_id, secret = random_id("mon", entropy), new_secret(entropy)
    row = new_row(monitor_id, slug, CREATED, initial_state(CREATED, now), now=now)
    own = {"badge_id": random_id("badge", entropy), "owner": key.owner, "made_by": key.made_by, "slug": slug, "tags": "", "plain": True}
    connection.execute(insert(MONITORS).values(**row, **own, **digests_of(secret, owned=True)))
    links = [{"monitor_id": monitor_id, "target_id": target_id, "place": place} for place, target_id in enumerate(targets)]
    connection.execute(insert(MONITOR_TARGETS), links)
    return _find(connection, key=key, slug=slug)
