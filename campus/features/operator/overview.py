"""The operator's first page: what is wrong at the moment, and the state of jobs, keys, payments, alerts, buildings and the process."""

import logging
import platform
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from typing import Any, TypeVar

import anyio
from starlette.requests import Request
from starlette.responses import Response

from campus.app import Campus
from campus.checks import Findings
from campus.durations import in_words
from campus.errors import CampusError, StorageUnavailable
from campus.features.audit_log.log import AuditRow, last_acts
from campus.features.operator.checklist import Point, checklist
from campus.features.operator.daily import DAYS_SHOWN, Daily, Income, daily_of, income_of
from campus.features.payments.ledger import Accounts, Period, accounts_of
from campus.jobs import JobStatus, describe_error
from campus.keys.repository import KeyCounts, count_keys
from campus.layout.renderer import Pages

ENDING_SOON = timedelta(days=7)
ACTS_SHOWN, ACTS_BACK = 12, timedelta(days=30)
SECTION_SECONDS = 8.0
"""How long one part of a page may take to be read: a database that hangs must not hide the rest."""
IN_DOUBT = ("unknown", "unproven", "reversed")
"""States of payments of which it is not certain that they were charged."""
PLACES = {"jobs": "/jobs", "payments": "/payments"}
"""The page on which a failed check is dealt with; that of a building is /buildings."""
log = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Section:
    """A part of a page: its value, or why it could not be read."""

    value: Any = None
    reason: str = ""


async def read_sections(**readers: Callable[[], Awaitable[object]]) -> dict[str, Section]:
    found: dict[str, Section] = {}

    async def read(name: str, reader: Callable[[], Awaitable[object]]) -> None:
        found[name] = Section(reason=f"it was not read within {SECTION_SECONDS:g} s; see what the database is doing")
        with anyio.move_on_after(SECTION_SECONDS):
            try:
                found[name] = Section(await reader())
            except Exception as error:  # the border: whatever one section raises is shown in its place
                found[name] = Section(reason=_reason(error, part=name))

    async with anyio.create_task_group() as tasks:
        for name, reader in readers.items():
            tasks.start_soon(read, name, reader)
    return found


async def done(act: Callable[[], Awaitable[Result]]) -> tuple[Result, None] | tuple[None, str]:
    """What an act of the operator returned; None, and why, if it was refused."""
    try:
        return await act(), None
    except StorageUnavailable:
        raise
    except CampusError as error:
        return None, str(error)


def rendered(pages: Pages, template: str, request: Request, refused: str | None = None, /, **variables: Any) -> Response:
    """One of the operator's pages; with the sentence of a refusal it is a 409."""
    return pages.page(template, request, status=409 if refused else 200, refused=refused or "", **variables)


def is_well(overview: Mapping[str, Section]) -> bool:
    """Whether all of the overview was read, and nothing in it is wrong, late or in doubt: checks that pass alone do not say so."""
    value = {name: section.value for name, section in overview.items()}
    doubts = [one for one in value["payments"] or () if one.state in IN_DOUBT and one.payments]
    jobs = [one for one in value["jobs"] or () if one.failures or one.overdue]
    targets = [one for one in (value["alerts"] or {}).values() if one.failing]
    unread = [section for section in overview.values() if section.reason]
    return not (unread or any((value["findings"] or {}).values()) or doubts or jobs or targets)


class OverviewPage:
    def __init__(self, campus: Campus, pages: Pages) -> None:
        self._campus = campus
        self._pages = pages
        self._started_at = campus.core.now()

    async def show(self, request: Request, form: Mapping[str, str], checked: Findings | None = None) -> Response:
        """The page; with the findings of `campus check` if it was asked for."""
        overview = await self.read()
        findings: Findings = overview["findings"].value or {}
        core = self._campus.core
        config = self._campus.plan.config

        async def acts() -> Sequence[AuditRow]:
            return await last_acts(core.storage, since=core.now() - ACTS_BACK, limit=ACTS_SHOWN)

        async def points() -> Sequence[Point]:
            return checklist(
                config,
                contact=self._campus.plan.contact,
                backup_note=core.databases.backup_note(),
                is_postgres=config.storage.url.startswith("postgresql"),
            )

        calls, income = partial(calls_by_day, self._campus), partial(income_by_day, self._campus)
        sections = await read_sections(acts=acts, points=points, calls=calls, income=income)
        return rendered(
            self._pages,
            "overview.html",
            request,
            overview=overview,
            troubles=[(name, sentence, PLACES.get(name, "/buildings")) for name, found in findings.items() for sentence in found],
            is_ready=self._campus.health.is_ready(findings),
            is_well=is_well(overview),
            checked=checked,
            process=self.process(),
            has_audit_log=self._campus.feature("audit_log") is not None,
            now=core.now(),
            **sections,
        )

    async def check(self, request: Request, form: Mapping[str, str]) -> Response:
        """Run the checks of `campus check`, which also ask feeds, facilitator, node and mail server."""
        return await self.show(request, form, await self._campus.ask("check"))

    async def read(self) -> dict[str, Section]:
        campus = self._campus
        return await read_sections(
            findings=campus.health.findings,
            jobs=partial(jobs_of, campus),
            keys=partial(key_counts, campus),
            payments=Accounts(campus.core.storage).states,
            alerts=campus.feature("alerts").states,
            facts=partial(facts_of, campus),
        )

    async def fingerprint(self) -> bytes:
        """A digest of what the page shows, apart from what changes all the time."""
        shown = await self.read()
        jobs = [(one.name, one.running, one.failures, one.overdue) for one in shown.pop("jobs").value or ()]
        return sha256(repr([jobs, shown]).encode()).digest()

    def process(self) -> dict[str, str]:
        now = self._campus.core.now()
        lag = self._campus.metrics.event_loop_lag
        requests = self._campus.metrics.requests
        return {
            "Version": f"campus {version('mcp-campus')}, Python {platform.python_version()}",
            "Process": f"{self._campus.scheduler.name}, running for {in_words(now - self._started_at)}",
            "Public address": self._campus.plan.config.url,
            "Database": self._campus.core.databases.place_of("campus"),
            "Requests": f"{requests.total():,} since the start, {requests.total(from_status=500):,} of them failed on our side",
            "Event-loop lag": f"median {_lag(lag.quantile(0.5))}, 99th percentile {_lag(lag.quantile(0.99))}, since the start",
        }


async def jobs_of(campus: Campus) -> Sequence[JobStatus]:
    await campus.scheduler.read_records()
    return campus.scheduler.status()


async def calls_by_day(campus: Campus) -> Daily:
    return daily_of(await campus.feature("usage").by_tool(days=DAYS_SHOWN), campus.core.now().date())


async def income_by_day(campus: Campus) -> Sequence[Income]:
    """The income of the last 30 days, without that from the operator's own wallets."""
    today = campus.core.now().date()
    accounts = accounts_of(campus.plan.config, campus.core.storage)
    return income_of(await accounts.revenue(Period(today - timedelta(days=DAYS_SHOWN - 1), today)), today)


async def key_counts(campus: Campus) -> KeyCounts:
    return await count_keys(campus.core.storage, now=campus.core.now(), within=ENDING_SOON)


async def facts_of(campus: Campus) -> dict[str, Mapping[str, str]]:
    """What each building says of itself; why not, if it cannot."""
    found: dict[str, Mapping[str, str]] = {}
    for one in campus.plan.opened:
        if (facts := one.loaded.building.facts) is not None:
            try:
                found[one.name] = await facts(campus.sites[one.name])
            except Exception as error:  # a building's code may raise anything; the others are shown
                found[one.name] = {"not read": _reason(error, part=one.name)}
    return found


def _reason(error: Exception, *, part: str) -> str:
    """Why a part cannot be shown; what nobody foresaw is in the log with its traceback."""
    if not isinstance(error, CampusError):
        log.error("part of the operator's page not read", exc_info=error, extra={"part": part})
    return describe_error(error)


def _lag(seconds: float | None) -> str:
    if seconds is None:
        return "not measured yet"
    return f"below {seconds * 1000:g} ms" if seconds < float("inf") else "above 2.5 s"
