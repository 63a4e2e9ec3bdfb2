"""The MCP server of the recorder: eight tools, and their HTTP routes."""

from functools import partial
from typing import Any, cast

from fastmcp import FastMCP
from pydantic import MISSING
from pydantic_core import to_json

from buildings.recorder.answers import Beaten, CapsuleAnswer, Deleted, Fleet, Registered, Watched
from buildings.recorder.answers import Taken as TakenAnswer
from buildings.recorder.arguments import (
    After,
    CapsuleValue,
    Email,
    Grace,
    Limit,
    MonitorId,
    Name,
    NextIn,
    OptionalSecret,
    Period,
    Secret,
    Seq,
    Status,
    Webhook,
    minutes,
)
from buildings.recorder.beats import Taken
from buildings.recorder.capsule import Unstored, packed
from buildings.recorder.changes import Claim, delete, set_watch, take_over
from buildings.recorder.fleet import read_fleet
from buildings.recorder.live import Here
from buildings.recorder.ownership import lineage_of
from buildings.recorder.refusals import capsule_not_stored, key_needed_for_email, neither_target, no_mail_here
from buildings.recorder.registration import Wish, register
from buildings.recorder.replies import CurrentIdempotencyKey, Repeatable, once
from buildings.recorder.resuming import read_capsules, taken_answer
from buildings.recorder.secrets import digest_of
from buildings.recorder.signal import Beat
from buildings.recorder.status import STILL, Terms, state_of
from buildings.recorder.targets import Address, check_webhook, email_address, webhook_address
from buildings.recorder.transactions import in_snapshot, in_transaction
from campus import Caller, CurrentCaller, CurrentSite, access, free, route

READS = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
WRITES = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False}
SETS = WRITES | {"idempotentHint": True}
REMOVES = SETS | {"destructiveHint": True}

mcp = FastMCP(
    "Agent monitor",
    instructions="A dead-man switch for agents and scheduled jobs. register_monitor gives a monitor_id and a secret; call heartbeat at "
    "least once per period. When no beat comes until period plus grace have passed, or a beat says fail, your webhook or mailbox is told "
    "within a minute, and again when beats come back. With a recorder key a beat can carry a capsule, the state of your work: when you "
    "die, your replacement reads it with fetch_capsule and claims the work with takeover, which locks you out should you come back. "
    "fleet_status shows all monitors of the key. The minute holds while this service runs; its own outages raise no alerts about you.",
)


@mcp.tool(
    title="Register a monitor",
    annotations=WRITES,
    meta=route("POST /v1/recorder/monitors", any_of=("alert_webhook", "alert_email")) | access(key="optional"),
)
async def register_monitor(
    name: Name,
    period_minutes: Period = 60,
    grace_minutes: Grace = 5,
    alert_webhook: Webhook = None,
    alert_email: Email = None,
    site: Here = CurrentSite(),
    caller: Caller = CurrentCaller(),
    repeat_key: str | None = CurrentIdempotencyKey(),
) -> Registered:
    """Register a monitor that raises an alert when beats stop coming. It is armed at once: beat before deadline_at.

    Give alert_webhook, alert_email or both. Free: one monitor per webhook address. With a recorder key the monitor is the
    key's: 20 of them, stored capsules, fleet_status, takeover and e-mail. Keep monitor_id and secret: then call
    heartbeat(monitor_id, secret) within every period, or put the `cron` line at the end of a scheduled job. Over HTTP an
    Idempotency-Key header makes a retry give the same monitor.
    """
    webhook, email = _targets(alert_webhook, alert_email, site, caller)
    warning = await check_webhook(webhook, site.web) if webhook else None
    terms = Terms(minutes(period_minutes), minutes(grace_minutes))
    wish = Wish(
        name=name, terms=terms, webhook=webhook, email=email, key=caller.key, url=site.url, warning=warning, key_ignored=caller.key_ignored
    )
    asked = to_json([name, period_minutes, grace_minutes, alert_webhook, alert_email])
    repeatable = Repeatable(lineage_of(caller) or caller.address, repeat_key, asked) if repeat_key else None
    now, entropy = site.now(), site.state.entropy
    answer = await in_transaction(
        site.storage,
        lambda connection: once(
            connection,
            repeatable,
            lambda: register(connection, wish, now=now, entropy=entropy).model_dump_json().encode(),
            now=now,
            entropy=entropy,
        ),
    )
    site.state.news.ring()
    site.count("registrations", tier="key" if caller.key else "free")
    return Registered.model_validate_json(answer)


def _targets(webhook: str | None, email: str | None, site: Here, caller: Caller) -> tuple[Address | None, Address | None]:
    """Where alerts are to go; Problem with what to send when they cannot."""
    if not webhook and not email:
        raise neither_target()
    if email and caller.key is None:
        raise key_needed_for_email([one for one in site.directory.products if one.scope in (site.name, "all")])
    if email and site.mail is None:
        raise no_mail_here()
    to_mail = email_address(email) if email else None
    to_web = webhook_address(webhook, site.web, discord_hosts=site.settings.discord_hosts) if webhook else None
    return to_web, to_mail


@mcp.tool(
    title="Beat",
    annotations=WRITES,
    meta=route("POST|GET /v1/recorder/beat/{monitor_id}/{secret}", lenient=["capsule"]) | free(),
)
async def heartbeat(
    monitor_id: MonitorId,
    secret: Secret,
    status: Status = "ok",
    capsule: CapsuleValue = MISSING,
    seq: Seq = None,
    next_in: NextIn = None,
    site: Here = CurrentSite(),
) -> Beaten:
    """Say that you live. Call it at least once per period; the answer means that the beat is on disk.

    status "fail" reports a failure at once, "start" and then "ok" time a run. Send your state as `capsule`, with a growing
    `seq`, so that a replacement can go on where you stopped. A capsule that is too large or cannot be stored is refused, and
    the beat counts all the same. If you get `taken_over`, another agent has your work: stop.
    """
    beat = Beat(
        monitor_id,
        digest_of(secret),
        site.now(),
        status,
        next_in=None if next_in is None else minutes(next_in),
        capsule=None if capsule is MISSING else packed(capsule),
        seq=seq,
    )
    taken = await site.state.beat(beat)
    if taken.alert is not None:
        site.state.news.ring()
    answer = Beaten(
        monitor_id=monitor_id,
        state=taken.state,
        received_at=beat.at,
        deadline_at=taken.deadline_at,
        capsule_stored=taken.kept,
        note=_note(taken, sent=beat.capsule is not None),
    )
    if isinstance(beat.capsule, Unstored):
        raise capsule_not_stored(beat.capsule, answer)
    return answer


def _note(taken: Taken, *, sent: bool) -> str | None:
    if taken.asleep:
        return "the key that owns this monitor has ended, and it raises no alerts until the key is renewed"
    if not sent or taken.kept:
        return None
    if taken.owned:
        return "the capsule was not stored: the key that owns this monitor has ended"
    return "the capsule was not stored: that takes a monitor that was registered with a recorder key"


@mcp.tool(
    title="Fetch a capsule",
    annotations=READS,
    meta=route("GET /v1/recorder/capsule/{monitor_id}", query={"secret": "s"}) | access(),
)
async def fetch_capsule(
    monitor_id: MonitorId, secret: OptionalSecret = None, site: Here = CurrentSite(), caller: Caller = CurrentCaller()
) -> CapsuleAnswer:
    """The last state capsule of a monitored agent, up to four before it, and how to go on from there.

    Needs the key that owns the monitor. Reading changes nothing: when the agent is dead and you replace it, call takeover.
    """
    claim = Claim(monitor_id, lineage_of(caller), secret)
    return await in_snapshot(site.storage, partial(read_capsules, claim=claim, url=site.url, now=site.now()))


@mcp.tool(title="Take over", annotations=WRITES, meta=route("POST /v1/recorder/monitors/{monitor_id}/takeover") | access())
async def takeover(
    monitor_id: MonitorId, secret: OptionalSecret = None, site: Here = CurrentSite(), caller: Caller = CurrentCaller()
) -> TakenAnswer:
    """Claim a dead agent's work: you get its last capsule and a new secret, and the old secret is refused from then on.

    Needs the key that owns the monitor, and a monitor that is dead. Of several replacements that ask at once exactly one
    gets it; the others are told `not_dead`. The clock runs from now: beat with the new secret before deadline_at.
    """
    claim, now = Claim(monitor_id, lineage_of(caller), secret), site.now()

    def work(connection: Any) -> TakenAnswer:
        taken = take_over(connection, claim, now=now, entropy=site.state.entropy)
        return taken_answer(connection, taken, url=site.url)

    answer = await in_transaction(site.storage, work)
    site.state.news.ring()
    return answer


@mcp.tool(title="The fleet", annotations=READS, meta=route("GET /v1/recorder/fleet") | access())
async def fleet_status(limit: Limit = 20, after: After = None, site: Here = CurrentSite(), caller: Caller = CurrentCaller()) -> Fleet:
    """All monitors of your key, as they stand now: alive, late or dead, and paused beside it.

    Each with its last beat, deadline, uptime, last 20 beats with durations, a preview of its capsule, where its alerts go,
    and alerts that could not be delivered yet.
    """
    lineage = cast(str, lineage_of(caller))
    page = partial(read_fleet, lineage=lineage, after=after or "", limit=limit, url=site.url, now=site.now())
    return await in_snapshot(site.storage, page)


@mcp.tool(title="Pause a monitor", annotations=SETS, meta=route("POST /v1/recorder/monitors/{monitor_id}/pause") | access(key="optional"))
async def pause_monitor(
    monitor_id: MonitorId, secret: OptionalSecret = None, site: Here = CurrentSite(), caller: Caller = CurrentCaller()
) -> Watched:
    """Raise no alerts for a monitor until resume_monitor, or until its next beat. Give its secret, or the owning key."""
    return await _set(Claim(monitor_id, lineage_of(caller), secret), site, pause=True)


@mcp.tool(title="Resume a monitor", annotations=SETS, meta=route("POST /v1/recorder/monitors/{monitor_id}/resume") | access(key="optional"))
async def resume_monitor(
    monitor_id: MonitorId, secret: OptionalSecret = None, site: Here = CurrentSite(), caller: Caller = CurrentCaller()
) -> Watched:
    """Watch a paused monitor again; a whole period and grace from now it is due. Give its secret, or the owning key."""
    return await _set(Claim(monitor_id, lineage_of(caller), secret), site, pause=False)


async def _set(claim: Claim, site: Here, *, pause: bool) -> Watched:
    now = site.now()
    work = partial(set_watch, claim=claim, event="pause" if pause else "resume", now=now)
    standing = await in_transaction(site.storage, work)
    still = standing.mode in STILL
    return Watched(
        monitor_id=claim.monitor_id,
        state=state_of(standing, now),
        paused=still,
        deadline_at=None if still else standing.deadline_at,
    )


@mcp.tool(
    title="Delete a monitor",
    annotations=REMOVES,
    meta=route("DELETE /v1/recorder/monitors/{monitor_id}", query={"secret": "s"}) | access(key="optional"),
)
async def delete_monitor(
    monitor_id: MonitorId, secret: OptionalSecret = None, site: Here = CurrentSite(), caller: Caller = CurrentCaller()
) -> Deleted:
    """Remove a monitor with its capsules, history and waiting alerts, for good. Give its secret, or the owning key."""
    await in_transaction(site.storage, partial(delete, claim=Claim(monitor_id, lineage_of(caller), secret)))
    return Deleted(monitor_id=monitor_id)
