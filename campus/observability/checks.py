"""Asking the buildings' checks, and what /readyz asks on top: a write, and the jobs."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import anyio

from campus.addresses import is_loopback
from campus.catalog.plan import Plan
from campus.catalog.server import OpenBuilding
from campus.config import ServerTable
from campus.errors import CampusError
from campus.jobs import Scheduler
from campus.payments.service import PaymentService
from campus.site import Site
from campus.storage import Storage, try_write

log = logging.getLogger(__name__)

WRITE_SECONDS = 6.0
"""Longer than a database waits for another process, so that it can say so itself."""

Findings = dict[str, Sequence[str]]
"""By building: a sentence for each thing that is wrong."""


async def ask_buildings(opened: Sequence[OpenBuilding], sites: Mapping[str, Site[Any, Any]], on: str) -> Findings:
    """What the checks of one kind find; a check that fails itself is a finding."""
    findings: Findings = {}
    for one in opened:
        found: list[str] = []
        for check in one.loaded.building.checks:
            if check.on == on:
                found += await _asked(check.run, sites[one.name])
        findings[one.name] = found
    return findings


async def _asked(run: Callable[..., Awaitable[Sequence[str]]], site: Site[Any, Any]) -> Sequence[str]:
    try:
        return await run(site)
    except Exception as error:  # the border to a building's code: told, and logged with its cause
        log.exception("check failed", extra={"building": site.name, "check": run.__name__})
        return [f"the check {run.__name__} failed: {type(error).__name__}; the cause is in the log"]


def server_findings(server: ServerTable) -> Sequence[str]:
    """What [server] says that is dangerous, or of no use."""
    found = []
    if server.public_url is None and not is_loopback(server.host):
        found.append(f"callers from elsewhere are refused by their Host header; set public_url, since host is {server.host}")
    if server.admin and not is_loopback(server.admin.host):
        found.append(f"admin = {str(server.admin)!r} has no login, and other machines may reach it; keep it behind a firewall")
    if every := [one for one in server.trusted_proxies if one.endswith("/0")]:
        found.append(f"trusted_proxies has {every[0]}: every caller may claim any address; name your proxies only")
    return found


async def unwritten(opened: OpenBuilding, site: Site[Any, Any]) -> Sequence[str]:
    """Whether a building's tables in code are those that its steps make; else calls would fail on what is missing."""
    if (tables := opened.loaded.building.tables) is None:
        return []
    from campus.storage.alembic_runner import drift  # 0.2 s

    if not (found := await drift(site.storage, tables)):
        return []
    return [
        f"its tables in code are not those of its database; write the step that is missing: campus migration {site.name} '…' ({found[0]})"
    ]


def readiness(
    plan: Plan,
    sites: Mapping[str, Site[Any, Any]],
    storage: Storage,
    scheduler: Scheduler,
    payments: PaymentService | None = None,
) -> Callable[[], Awaitable[Findings]]:
    """What /readyz asks: whether every database takes a write, whether jobs run and payments go through, and the buildings' checks.

    `storage` holds what is found of campus's own database and of those that calls write to. A database that only jobs write
    to, since all of its building's tools are read-only, is a finding of its building: calls are answered without it.
    """
    written = {one.name: sites[one.name].storage for one in plan.opened if one.loaded.building.tables}
    needed = [one.name for one in plan.opened if one.name in written and calls_write(one)]

    async def findings() -> Findings:
        refused = await _write_tests({"": storage, **written})
        own: Findings = {"storage": [*refused.pop("", ()), *chain(*(refused.pop(name, ()) for name in needed))]}
        own["jobs"] = scheduler.findings()
        if payments:
            own["payments"] = await payments.findings()
        asked = await ask_buildings(plan.opened, sites, "ready")
        for name, found in refused.items():
            asked[name] = [*found, *asked.get(name, ())]
        for name, remote in plan.remotes.items():
            asked[name] = [*remote.findings(), *asked.get(name, ())]
        return own | asked

    return findings


def calls_write(opened: OpenBuilding) -> bool:
    """Whether a call of one of the building's tools may write: all but those annotated read-only may."""
    return any(not (tool.annotations and tool.annotations.read_only_hint) for tool in opened.tools.values())


async def _write_tests(storages: Mapping[str, Storage]) -> Findings:
    """What each database says to a write, all of them asked at once."""
    found: Findings = {}

    async def test(name: str, storage: Storage) -> None:
        found[name] = await _write_test(name, storage)

    async with anyio.create_task_group() as tasks:
        for name, storage in storages.items():
            tasks.start_soon(test, name, storage)
    return found


async def _write_test(name: str, storage: Storage) -> Sequence[str]:
    try:
        with anyio.move_on_after(WRITE_SECONDS):
            await try_write(storage)
            return []
    except CampusError as error:
        return [str(error)]
    return [f"the database of {name or 'campus'} took no write within {WRITE_SECONDS:g} s; see what keeps it"]
