"""The tools that change a registered monitor: update, pause, resume, test and delete it, on the server of the building."""

from functools import partial

from sqlalchemy import Connection

from buildings.recorder.alerts.addresses import addresses_in, check_addresses, registrant
from buildings.recorder.alerts.raising import raise_test
from buildings.recorder.arguments import Email, MonitorId, NewGrace, NewName, NewPeriod, OptionalSecret, Webhook, minutes
from buildings.recorder.models import Deleted, Resecured, Tested, Updated, Watched
from buildings.recorder.monitors.credentials import Credentials, lineage_of
from buildings.recorder.monitors.rows import authorized_monitor, delete, pause_or_resume, watched
from buildings.recorder.monitors.updates import MonitorUpdate, NewTargets, owner_for_targets, secret_replaced, update_stored
from buildings.recorder.problems import nothing_to_change, too_many_test_alerts
from buildings.recorder.runtime import TEST_ALERTS_PER_MINUTE, RecorderSite
from buildings.recorder.server import WRITES, mcp
from campus import Caller, CurrentCaller, CurrentSite, access, route
from campus.alerts import Addresses
from campus.storage import in_snapshot, in_transaction

SETS = WRITES | {"idempotentHint": True}
REMOVES = SETS | {"destructiveHint": True}
__all__ = ["delete_monitor", "mcp", "pause_monitor", "replace_secret", "resume_monitor", "send_test_alert", "update_monitor"]


@mcp.tool(
    title="Change a monitor",
    annotations=SETS,
    meta=route(
        "PATCH /v1/recorder/monitors/{monitor_id}",
        any_of=("name", "period_minutes", "grace_minutes", "alert_webhook", "alert_email"),
    )
    | access(key="optional"),
)
async def update_monitor(
    monitor_id: MonitorId,
    secret: OptionalSecret = None,
    name: NewName = None,
    period_minutes: NewPeriod = None,
    grace_minutes: NewGrace = None,
    alert_webhook: Webhook = None,
    alert_email: Email = None,
    site: RecorderSite = CurrentSite(),
    caller: Caller = CurrentCaller(),
) -> Updated:
    """Change the name, schedule or alert targets of a monitor: send what changes, leave out the rest. Its secret and history stay.

    Use it when a job runs at other times, or when alerts must go elsewhere. Pass the monitor's secret, or call with the key that
    owns it; only that key changes the targets of a monitor that it owns. A new webhook replaces the old one, a new e-mail address
    the old address, and undelivered alerts go to the new target. The new period counts from the last beat, unless that beat sent
    next_in. The change itself makes no monitor dead: deadline_at is at least the grace, and 30 seconds, away. A dead or paused
    monitor stays so until its next beat. Returns the schedule and deadline_at, and webhook_secret for a signed webhook. Next:
    after a new target call send_test_alert.
    """
    credentials = Credentials(monitor_id, lineage_of(caller), secret)
    if not any((name, period_minutes, grace_minutes is not None, alert_webhook, alert_email)):
        raise nothing_to_change()
    addresses = await addresses_in(alert_webhook, alert_email, site, caller)
    targets = await _new_targets(addresses, credentials, site, caller) if addresses.webhook or addresses.email else None
    update = MonitorUpdate(
        maker=caller.maker,
        name=name,
        period=None if period_minutes is None else minutes(period_minutes),
        grace=None if grace_minutes is None else minutes(grace_minutes),
        targets=targets,
    )
    work = partial(update_stored, credentials=credentials, update=update, now=site.state.time.now(), entropy=site.state.entropy)
    answer = await in_transaction(site.storage, work)
    if targets:
        site.state.dispatcher.wake()
    return answer


async def _new_targets(addresses: Addresses, credentials: Credentials, site: RecorderSite, caller: Caller) -> NewTargets:
    """The targets that a monitor is to have. Nothing is counted or connected to for callers who may not change them."""
    owner = await in_snapshot(site.storage, partial(owner_for_targets, credentials=credentials, addresses=addresses))
    warning = await check_addresses(addresses, site, caller)
    return NewTargets(addresses, registrant(owner, site, caller), site.state.dispatcher.channels, warning)


@mcp.tool(title="Replace a monitor's secret", annotations=WRITES, meta=route("POST /v1/recorder/monitors/{monitor_id}/secret") | access())
async def replace_secret(monitor_id: MonitorId, site: RecorderSite = CurrentSite(), caller: Caller = CurrentCaller()) -> Resecured:
    """Give a monitor a new secret, and with it new beat addresses. The old secret is invalid at once: its beats are refused.

    Use it when the secret was lost, or somebody else may have seen it. Only the key that owns the monitor can do it. State, schedule,
    history and capsules stay. Returns secret, beat_url, hook_url and `cron`. Next: put the new address where the old one was, before
    the monitor's deadline.
    """
    credentials = Credentials(monitor_id, lineage_of(caller), None)
    work = partial(secret_replaced, credentials=credentials, maker=caller.maker, url=site.url, entropy=site.state.entropy)
    return await in_transaction(site.storage, work)


@mcp.tool(title="Pause a monitor", annotations=SETS, meta=route("POST /v1/recorder/monitors/{monitor_id}/pause") | access(key="optional"))
async def pause_monitor(
    monitor_id: MonitorId, secret: OptionalSecret = None, site: RecorderSite = CurrentSite(), caller: Caller = CurrentCaller()
) -> Watched:
    """Suppress the alerts of a monitor until resume_monitor is called or its next beat arrives.

    Use it before planned downtime. Pass the monitor's secret, or call with the key that owns it. Returns its state.
    """
    return await _pause_or_resume(Credentials(monitor_id, lineage_of(caller), secret), site, pause=True)


@mcp.tool(title="Resume a monitor", annotations=SETS, meta=route("POST /v1/recorder/monitors/{monitor_id}/resume") | access(key="optional"))
async def resume_monitor(
    monitor_id: MonitorId, secret: OptionalSecret = None, site: RecorderSite = CurrentSite(), caller: Caller = CurrentCaller()
) -> Watched:
    """Resume a paused or idle monitor: the next beat is due one period from now, and the alert is sent one grace later.

    Pass the monitor's secret, or call with the key that owns it. Returns its state and the new deadline_at.
    """
    return await _pause_or_resume(Credentials(monitor_id, lineage_of(caller), secret), site, pause=False)


async def _pause_or_resume(credentials: Credentials, site: RecorderSite, *, pause: bool) -> Watched:
    now = site.state.time.now()
    work = partial(pause_or_resume, credentials=credentials, event="pause" if pause else "resume", now=now)
    state = await in_transaction(site.storage, work)
    return watched(credentials.monitor_id, state, now)


@mcp.tool(
    title="Send a test alert",
    annotations=WRITES,
    meta=route("POST /v1/recorder/monitors/{monitor_id}/test") | access(key="optional"),
)
async def send_test_alert(
    monitor_id: MonitorId, secret: OptionalSecret = None, site: RecorderSite = CurrentSite(), caller: Caller = CurrentCaller()
) -> Tested:
    """Send a test alert to every target of a monitor that takes alerts, to see that they arrive. The monitor's state stays as it is.

    Use it after register_monitor, after a change at the receiving side, and to enable a key's target that was disabled because it
    failed. Pass the monitor's secret, or call with the key that owns it. The alert has the type monitor.test. At most three a
    minute. Next: look for it at the target; with a key, fleet_status says how many alerts are undelivered, and why.
    """
    credentials = Credentials(monitor_id, lineage_of(caller), secret)
    now = site.state.time.now()

    def work(connection: Connection) -> int:
        row = authorized_monitor(connection, credentials)
        targets = raise_test(connection, row, now=now)
        if not (limits := site.state.test_alerts).take(row.id, now):  # undoes it, too
            raise too_many_test_alerts(limits.next_at(row.id, now) - now, limit=TEST_ALERTS_PER_MINUTE)
        return targets

    targets = await in_transaction(site.storage, work)
    site.state.dispatcher.wake()
    note = (
        "It is sent within seconds. If it does not arrive, fleet_status says why; without a key, check the address and call update_monitor."
    )
    return Tested(monitor_id=monitor_id, targets=targets, note=note)


@mcp.tool(
    title="Delete a monitor",
    annotations=REMOVES,
    meta=route("DELETE /v1/recorder/monitors/{monitor_id}", query={"secret": "s"}) | access(key="optional"),
)
async def delete_monitor(
    monitor_id: MonitorId, secret: OptionalSecret = None, site: RecorderSite = CurrentSite(), caller: Caller = CurrentCaller()
) -> Deleted:
    """Delete a monitor with its capsules, its history and its undelivered alerts. This cannot be undone.

    Use it when a job or agent is retired. Pass the monitor's secret, or call with the key that owns it.
    """
    await in_transaction(site.storage, partial(delete, credentials=Credentials(monitor_id, lineage_of(caller), secret)))
    return Deleted(monitor_id=monitor_id)
