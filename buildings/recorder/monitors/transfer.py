"""What comes and goes as a whole: the export of all that a key owns, its deletion, and the import of Healthchecks' checks."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal, Self, cast
from uuid import UUID

import anyio.to_thread
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import from_json, to_json
from sqlalchemy import Connection, Row, select
from starlette.responses import StreamingResponse

from buildings.recorder.alerts.raising import delivered_to
from buildings.recorder.arguments import LONGEST, LONGEST_DESCRIPTION, LONGEST_NAME, Name, Schedule, Timezone, is_slug
from buildings.recorder.beats.rules import BEATS_IN_HISTORY, PAGES_KEPT
from buildings.recorder.beats.runs import RUNS_KEPT
from buildings.recorder.models import AllDeleted, Imported, ImportedCheck, Registered
from buildings.recorder.monitors.credentials import Credentials, lineage_of
from buildings.recorder.monitors.fleet import read_monitor
from buildings.recorder.monitors.options import NO_OPTIONS, sent_options, stored_schedule
from buildings.recorder.monitors.registration import CHANGED, RegistrationRequest, monitor_with_slug, register, register_again
from buildings.recorder.monitors.rows import delete_all, store_change
from buildings.recorder.monitors.state_machine import AppliedEvent, apply_event, stored_state
from buildings.recorder.problems import checks_unreadable, fixed_problem
from buildings.recorder.runtime import RecorderSite
from buildings.recorder.tables import CAPSULES, FLEET_KEYS, MONITORS
from campus import Problem, Request, Response
from campus.features.alerts import masked_address
from campus.secrets import Entropy, digest_of
from campus.storage import in_snapshot, in_transaction
from twins import unstorable_reason

BEATS_KEPT = PAGES_KEPT * BEATS_IN_HISTORY
LARGEST_IMPORT = 512 * 1024
MOST_CHECKS = 1_000
MONITORS_PER_TRANSACTION = 20
MOST_DELIVERIES = 2_000
NOT_EXPORTED = {"ok", "capsule", "runs", "last_runs", "last_beats"}
SECONDS = 60 * LONGEST
CHANNELS = "Healthchecks' channels are not in this list: alerts go to the alert_webhook and alert_email of this call."


async def export(request: Request, site: RecorderSite) -> Response:
    """All that the visitor's key owns, as JSON Lines. A monitor at a time is in memory."""
    lineage = cast(str, lineage_of(await site.admit(request, "fleet_status")))
    headers = {"Cache-Control": "private, no-store", "Content-Disposition": 'attachment; filename="monitors.jsonl"'}
    return StreamingResponse(_lines(site, lineage), media_type="application/jsonl", headers=headers)


async def _lines(site: RecorderSite, lineage: str) -> AsyncIterator[bytes]:
    after = ""
    first = select(MONITORS.c.id).where(MONITORS.c.owner == lineage).order_by(MONITORS.c.id).limit(1)
    while monitor_id := await in_snapshot(site.storage, partial(Connection.scalar, statement=first.where(MONITORS.c.id > after))):
        credentials = Credentials(monitor_id, lineage, None)
        read = partial(_exported, credentials=credentials, url=site.url, now=site.state.time.now())
        try:
            for part in await in_snapshot(site.storage, read):
                yield to_json(part) + b"\n"
        except Problem:
            pass  # it was deleted at this moment
        after = monitor_id


def _exported(connection: Connection, credentials: Credentials, *, url: str, now: datetime) -> list[dict[str, Any]]:
    monitor = read_monitor(connection, credentials, runs=RUNS_KEPT, beats=BEATS_KEPT, url=url, now=now)
    chosen = select(CAPSULES).where(CAPSULES.c.monitor_id == monitor.monitor_id).order_by(CAPSULES.c.number)
    parts: dict[str, Sequence[dict[str, Any]]] = {
        "monitor": [monitor.model_dump(exclude=NOT_EXPORTED)],
        "run": [run.model_dump() for run in monitor.last_runs],
        "beat": [beat.model_dump() for beat in monitor.last_beats],
        "capsule": [{"seq": row.seq, "stored_at": row.at, "capsule": from_json(row.body)} for row in connection.execute(chosen)],
        "delivery": [_delivery(row) for row in delivered_to(connection, monitor.monitor_id, limit=MOST_DELIVERIES)],
    }
    return [{"is": kind, "monitor_id": monitor.monitor_id, **each} for kind, members in parts.items() for each in members]


def _delivery(row: Row[Any]) -> dict[str, Any]:
    return {
        **{name: getattr(row, name) for name in ("message_id", "kind", "reason", "at", "delivered_at", "channel")},
        "address": masked_address(row.address),
    }


async def delete_everything_of(site: RecorderSite, lineage: str) -> AllDeleted:
    """Delete the monitors and the ping and read keys of an owner, some in each transaction."""
    keys = FLEET_KEYS.delete().where(FLEET_KEYS.c.owner == lineage)
    ended = await in_transaction(site.storage, lambda connection: connection.execute(keys).rowcount)
    deleted = 0
    while part := await in_transaction(site.storage, partial(_delete_some, lineage=lineage)):
        deleted += part
    return AllDeleted(monitors=deleted, keys=ended)


def _delete_some(connection: Connection, lineage: str) -> int:
    rows = connection.execute(select(MONITORS).where(MONITORS.c.owner == lineage).limit(MONITORS_PER_TRANSACTION)).all()
    delete_all(connection, rows)
    return len(rows)


class HealthchecksCheck(BaseModel):
    """A check as Healthchecks' API v3 lists it; members that say nothing about a monitor are not read. Times are in seconds."""

    name: Name
    slug: str = ""
    tags: Annotated[list[Annotated[str, Field(max_length=40)]], BeforeValidator(str.split), Field(max_length=20)] = []
    desc: str = ""
    grace: float = Field(ge=0, le=SECONDS)
    timeout: float = Field(default=3600, ge=6, le=SECONDS)
    schedule: Schedule = None
    tz: Timezone = "UTC"
    status: str = ""
    manual_resume: bool = False
    uuid: UUID
    methods: str = ""
    filter_subject: bool = False
    filter_body: bool = False
    filter_http_body: bool = False

    @classmethod
    def read(cls, given: dict[str, Any]) -> Self:
        """A check of the list; its uuid may stand in `ping_url` alone. Raises ValidationError."""
        name = str(given.get("name") or given.get("slug") or "unnamed")[:LONGEST_NAME]
        uuid = given.get("uuid") or str(given.get("ping_url") or "").rstrip("/").rpartition("/")[2]
        return cls.model_validate({**given, "name": name, "uuid": uuid})

    @property
    def notes(self) -> Iterator[str]:
        """What of it no monitor has."""
        if self.methods:
            yield f"methods: beats by every method count, not by {self.methods} alone."
        if self.filter_subject or self.filter_body or self.filter_http_body:
            yield "Its filters of subjects and bodies are left out: every ping is a success unless its address says otherwise."
        if len(self.desc) > LONGEST_DESCRIPTION:
            yield f"Of its description the first {LONGEST_DESCRIPTION:,} characters are kept."


def read_checks(document: str) -> list[dict[str, Any]]:
    """The checks of Healthchecks' answer; Problem 422 if it is none."""
    try:
        checks = from_json(document)["checks"]
    except (ValueError, TypeError, KeyError):
        raise checks_unreadable("it is no JSON object with a list `checks`") from None
    if not isinstance(checks, list) or not all(isinstance(check, dict) for check in checks):
        raise checks_unreadable("`checks` is no list of objects")
    if len(checks) > MOST_CHECKS:
        raise checks_unreadable(f"it has {len(checks):,} checks, and at most {MOST_CHECKS:,} are read at once")
    if reason := unstorable_reason(checks):
        raise checks_unreadable(reason)
    return checks


async def import_checks(site: RecorderSite, document: str, template: RegistrationRequest) -> Imported:
    """Make monitors of Healthchecks' checks, a transaction for each. `template` is what all of them have: their owner and targets."""
    checks = await anyio.to_thread.run_sync(read_checks, document)
    fates: list[ImportedCheck] = []
    secrets: set[str | None] = {None}
    notes = {CHANNELS: None}
    mine = select(MONITORS.c.ping_digest).where(MONITORS.c.owner == template.by.owner)
    known = set(await in_snapshot(site.storage, lambda connection: connection.scalars(mine).all()))
    full: Problem | None = None
    for given in checks:
        try:
            check = HealthchecksCheck.read(given)
            if full is not None and digest_of(str(check.uuid)) not in known:  # hundreds beyond the limit cost no transaction each
                raise full
            work = partial(_store, check=check, template=template, now=site.state.time.now(), entropy=site.state.entropy)
            result, answer, left_out = await in_transaction(site.storage, work)
        except (ValidationError, Problem) as error:
            full = error if isinstance(error, Problem) and error.code == "monitor_limit_reached" else full
            fates.append(ImportedCheck(name=str(given.get("name", "")), result="refused", notes=(_reason(error),)))
            continue
        ping_url = f"{site.url}/ping/{check.uuid}"
        fates.append(ImportedCheck(name=check.name, result=result, monitor_id=answer.monitor_id, ping_url=ping_url, notes=tuple(left_out)))
        secrets.add(answer.webhook_secret)
        notes |= dict.fromkeys(note for note in answer.notes if note != CHANGED)
    counts = Counter(fate.result for fate in fates)
    return Imported(
        made=counts["made"],
        updated=counts["updated"],
        refused=counts["refused"],
        checks=tuple(fates),
        webhook_secret=next(filter(None, secrets), None),
        notes=tuple(notes),
    )


def _reason(error: ValidationError | Problem) -> str:
    if isinstance(error, Problem):
        return error.detail
    if any(one["loc"] == ("uuid",) for one in error.errors()):
        return "It has no UUID: a read-only key of Healthchecks does not show them; use one that may write."
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])


def _store(
    connection: Connection, check: HealthchecksCheck, template: RegistrationRequest, *, now: datetime, entropy: Entropy
) -> tuple[Literal["made", "updated"], Registered, list[str]]:
    digest = digest_of(str(check.uuid))
    row = connection.execute(select(MONITORS).where(MONITORS.c.ping_digest == digest)).one_or_none()
    if row is not None and row.owner != template.by.owner:
        raise fixed_problem("address_in_use")
    request, left_out = _request_of(connection, check, row, template, now)
    if row is not None:
        return "updated", register_again(connection, row, request, now=now, entropy=entropy), left_out
    answer = register(connection, request, now=now, entropy=entropy)
    made = connection.execute(select(MONITORS).where(MONITORS.c.id == answer.monitor_id)).one()
    state = stored_state(made)
    change = apply_event(state, "pause", stored_schedule(made), now) if check.status == "paused" else AppliedEvent(state)
    store_change(connection, made, change, ping_digest=digest)
    return "made", answer, left_out


def _request_of(
    connection: Connection, check: HealthchecksCheck, row: Row[Any] | None, template: RegistrationRequest, now: datetime
) -> tuple[RegistrationRequest, list[str]]:
    """The registration that a check stands for, and what of it is left out."""
    left_out = list(check.notes)
    slug = check.slug if is_slug(check.slug) else None
    other = monitor_with_slug(connection, template.by.owner, slug)
    if other is not None and (row is None or row.id != other.id):
        slug = None
    if check.slug and slug is None:
        left_out.append(f"The slug {check.slug} is left out: another monitor has it, or it cannot be one here.")
    options = NO_OPTIONS.changed(
        sent_options(check.desc[:LONGEST_DESCRIPTION], check.schedule, check.tz, *[None] * 6, check.manual_resume, None, None)
    )
    options.check_times(now)
    schedule = options.schedule_of(timedelta(seconds=check.timeout), timedelta(seconds=check.grace))
    return replace(template, name=check.name, schedule=schedule, options=options, slug=slug, tags=check.tags), left_out
