"""The operator's page of payments: by state, income, how often terms are paid, unproven ones, and what the chain says of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import partial
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response

from campus.app import Campus
from campus.errors import CampusError
from campus.features.operator.overview import done, income_by_day, read_sections, rendered
from campus.features.payments.ledger import Funnel, Period, accounts_of
from campus.layout.renderer import Pages
from campus.pricing import Price

ENTRIES_SHOWN = 30
FUNNEL_DAYS = 7
RECONCILE_SECONDS = 60.0
RECONCILED_BACK = timedelta(days=30)


@dataclass(frozen=True)
class PaymentPages:
    campus: Campus
    pages: Pages

    async def show(self, request: Request, form: Mapping[str, str], refused: str | None = None, **shown: Any) -> Response:
        """Payments by state, income by day, how often terms are paid, unproven payments, and the newest entries of the ledger."""
        service = self.campus.feature("payments")
        accounts = accounts_of(self.campus.plan.config, self.campus.core.storage)
        today = self.campus.core.now().date()

        async def funnel() -> Sequence[Funnel]:
            return funnel_of(await accounts.funnel(Period(today - timedelta(days=FUNNEL_DAYS - 1), today)))

        async def entries() -> object:
            return tuple(reversed(await accounts.last(ENTRIES_SHOWN, Period())))

        async def overdue() -> object:
            return await service.unproven.overdue() if service else ()

        async def findings() -> object:
            return await service.findings() if service else ()

        sections = await read_sections(
            states=accounts.states,
            income=partial(income_by_day, self.campus),
            funnel=funnel,
            entries=entries,
            overdue=overdue,
            findings=findings,
        )
        more = {"price": Price, "takes_payments": service is not None, "reconciled": None, "accepted": None, **shown}
        return rendered(self.pages, "payments.html", request, refused, **sections, **more)

    async def accept_unproven(self, request: Request, form: Mapping[str, str]) -> Response:
        accepted, refused = await done(lambda: self._payment_service().unproven.accept())  # noqa: PLW0108  # without [payments] the first call raises
        return await self.show(request, {}, refused, accepted=accepted)

    async def reconcile(self, request: Request, form: Mapping[str, str]) -> Response:
        """Resolve payments in doubt and compare the ledger with the chain, as `campus ledger reconcile` does."""
        since = datetime.combine((self.campus.core.now() - RECONCILED_BACK).date(), time(), self.campus.core.now().tzinfo)
        try:
            with anyio.fail_after(RECONCILE_SECONDS):
                reconciled, refused = await done(lambda: self._payment_service().reconcile(since))
        except TimeoutError:
            late = f"the node did not answer in {RECONCILE_SECONDS:g} s; run `campus ledger reconcile`, which has more time"
            return await self.show(request, {}, late)
        return await self.show(request, {}, refused, reconciled=reconciled)

    def _payment_service(self) -> Any:
        found = self.campus.feature("payments")
        if found is None:
            raise CampusError("campus.toml has no table [payments], so there are no payments; add it, or uncomment its lines")
        return found


def funnel_of(days: Sequence[Funnel]) -> list[Funnel]:
    """The days of each tool added up, the most shown first. A payer counts once a day."""
    tools = sorted({(day.building, day.tool) for day in days})
    found = []
    for building, tool in tools:
        of_it = [day for day in days if (day.building, day.tool) == (building, tool)]
        sums = (sum(one.shown for one in of_it), sum(one.paid for one in of_it), sum(one.payers for one in of_it))
        found.append(Funnel("", building, tool, *sums))
    return sorted(found, key=lambda one: one.shown, reverse=True)
