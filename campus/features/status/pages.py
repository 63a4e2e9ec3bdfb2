"""/status for everybody, from what was measured; and the service that measures."""

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from math import floor
from typing import NamedTuple

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from campus.building import Building
from campus.catalog.parts import FeatureSite
from campus.catalog.plan import Plan
from campus.durations import in_words
from campus.errors import StorageError
from campus.features.status.days import ALERTS, DAYS, EVERY, LONGEST_GAP, SERVICE, StatusDays
from campus.http.health import FAILED_CHECKS, Findings
from campus.http.service_routes import own_page
from campus.http_parts import HttpPart
from twins import RouteEntry

log = logging.getLogger(__name__)
SERIOUS = 0.01  # From this share of a day on, its bar is red.
LONGEST_WRITE = 5.0
WORKS, FAILS, UNKNOWN = "works", "fails", "unknown"


class Part(NamedTuple):
    """One line of the page: its state now, and its days, the oldest first, each with good and bad (see StatusDay), None if not measured."""

    name: str
    title: str
    state: str
    days: Sequence[tuple[str, tuple[int, int] | None]]

    @property
    def tones(self) -> list[str]:
        return [_tone(found) for _, found in self.days]

    @property
    def measured(self) -> Sequence[tuple[str, int, int]]:
        return [(day, *found) for day, found in self.days if found is not None]

    @property
    def troubles(self) -> list[tuple[str, str]]:
        """The days on which something was bad, the newest first, each with how much."""
        alerts = self.name == ALERTS
        return [
            (day, f"{bad:,} of {good + bad:,} later than a minute" if alerts else in_words(timedelta(seconds=bad)))
            for day, good, bad in reversed(self.measured)
            if bad
        ]

    @property
    def share(self) -> str:
        """Of what was measured the good share, never rounded up; "" if there is nothing yet."""
        good, bad = sum(good for _, good, _ in self.measured), sum(bad for _, _, bad in self.measured)
        return f"{floor(good / (good + bad) * 10_000) / 100:g} %" if good + bad else ""


def _tone(found: tuple[int, int] | None) -> str:
    if found is None or not sum(found):
        return "none"
    return "good" if not found[1] else "bad" if found[1] / sum(found) >= SERIOUS else "warn"


class StatusPages(HttpPart):
    places: Mapping[str, str] = {"status": "/status"}

    @property
    def days(self) -> StatusDays:
        state: StatusDays = self.site.state
        return state

    def routes(self, plan: Plan, servers: Mapping[str, ASGIApp]) -> Collection[RouteEntry]:
        return [own_page(["GET"], "/status", self.show)]

    async def run(self) -> None:
        while True:
            await anyio.sleep(EVERY.total_seconds())
            await self.measure()

    async def measure(self) -> None:
        """What cannot be stored is a gap, which counts as time in which the service did not work."""
        works = self._works(await self.campus.health.findings())
        try:
            with anyio.move_on_after(LONGEST_WRITE, shield=True):  # a process that ends waits for it
                await self.days.measure(self.campus.core.now(), works, self.campus.feature("alerts").delivered)
        except StorageError as error:
            log.warning("status not measured", extra={"reason": error})

    def _works(self, findings: Findings) -> dict[str, bool]:
        if FAILED_CHECKS in findings:  # nothing is known of the parts, and the service does not do what it should
            return {SERVICE: False}
        names = [one.name for one in self.campus.plan.loaded if one.name in findings]
        return {SERVICE: not findings.get("storage")} | {name: not findings[name] for name in names}

    async def show(self, request: Request) -> Response:
        now, today = self.campus.core.now(), self.campus.core.now().date()
        works = self._works(await self.campus.health.findings())
        is_known = self.days.measured_at is not None and now - self.days.measured_at <= LONGEST_GAP
        dates = [(today - timedelta(days=back)).isoformat() for back in reversed(range(DAYS))]
        stored = {(row.name, row.day): (row.good, row.bad) for row in self.days.rows}
        names = [SERVICE, *(one.name for one in self.campus.plan.loaded), *([ALERTS] if any(name == ALERTS for name, _ in stored) else [])]
        parts = [
            Part(
                name,
                self._title(name),
                {True: WORKS, False: FAILS, None: UNKNOWN}[works.get(name) if is_known or name == SERVICE else None],
                [(day, stored.get((name, day))) for day in dates],
            )
            for name in names
        ]
        states = {part.state for part in parts if part.name != ALERTS}
        state = FAILS if FAILS in states else UNKNOWN if UNKNOWN in states else WORKS
        since = self.days.rows[0].day if self.days.rows else None
        measured_at = self.days.measured_at
        shown = [
            {"name": part.name.strip("/") or "service", "title": part.title, "state": part.state}
            | {"unit": "alerts" if part.name == ALERTS else "seconds"}
            | {"days": [{"day": day, "good": good, "bad": bad} for day, good, bad in part.measured]}
            for part in parts
        ]
        data = {"ok": True, "state": state, "measured_since": since, "measured_at": measured_at, "parts": shown}
        days = len({row.day for row in self.days.rows})
        return self.pages.page("status.html", request, data=data, state=state, parts=parts, since=since, days=days, measured_at=measured_at)

    def _title(self, name: str) -> str:
        entry = self.directory.building(name)
        return {SERVICE: "The service", ALERTS: "Delivery of alerts"}.get(name) or (entry.title if entry else name)


def opened(site: FeatureSite[None]) -> StatusDays:
    return StatusDays(site.storage)


building = Building(state=opened, http=StatusPages)
