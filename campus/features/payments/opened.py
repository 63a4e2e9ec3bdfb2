"""What payments give a campus: the step that sells calls, its jobs, its checks, and what the plan says of prices."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio

from campus.building import Building, Check, Job, Service
from campus.catalog.parts import FeatureSite
from campus.errors import JobFailed
from campus.features.payments.audit import UNCLAIMED_EXPLAINED, report
from campus.features.payments.feature import PaymentsTable
from campus.features.payments.pages import PricingPages
from campus.features.payments.pricing import PaymentsPlan
from campus.features.payments.problems import PROBLEMS
from campus.features.payments.reservations import delete_expired, delete_released
from campus.features.payments.sale import Sale
from campus.features.payments.setup import Payments, open_payments

RECONCILED_EVERY = timedelta(seconds=15)
AUDITED_AT = "03:20"
AUDITED_BACK = timedelta(days=3)
"""How far back the daily audit goes: a node that was down for a weekend leaves no gap."""
MINUTE = timedelta(minutes=1)
PaymentsSite = FeatureSite[PaymentsTable | None, Payments]
log = logging.getLogger(__name__)


@asynccontextmanager
async def opened(site: FeatureSite[PaymentsTable | None, None]) -> AsyncIterator[Payments | None]:
    """The payments of one process; None where campus.toml has no [payments]."""
    if site.settings is None:
        yield None
        return
    keys, secrets = site.core.keys.sales, site.config.secrets
    async with open_payments(site.settings, site.storage, keys, secrets=secrets, now=site.clock, elapsed=site.elapsed) as payments:
        yield payments


async def load_what_the_first_payment_needs(site: PaymentsSite) -> None:
    """In a thread, so that it delays no call."""
    try:
        for way in site.state.ways.values():
            await way.facilitators.loaded()
    except ImportError:
        log.exception("payments cannot be accepted: run pip install 'mcp-campus[payments]'")
    await anyio.sleep_forever()


async def reconcile_payments(site: PaymentsSite) -> bool:
    """Conclude what is in doubt; returns whether anything was."""
    return any(one.before != one.after for one in await site.state.resolve())


async def audit_payments(site: PaymentsSite) -> None:
    """Compare income with the ledger, and log what differs."""
    failed: JobFailed | None = None
    for way in site.state.ways.values():
        try:
            way.audit.last = await way.audit.run(site.state.now() - AUDITED_BACK, most=UNCLAIMED_EXPLAINED)
        except JobFailed as error:  # the others are audited all the same
            failed = error
        else:
            report(way.audit.last)
    if failed is not None:
        raise failed


async def wipe_answers(site: PaymentsSite) -> bool:
    """Delete old answers, and old payments that were not charged; returns whether there were any."""
    if not site.state.clock_steps.is_settled():
        log.warning("no answers are wiped: the clock was set to another time within the last hour")
        return False
    now = site.state.now()
    return await delete_expired(site.storage, now=now) + await delete_released(site.storage, now=now) > 0


async def flush_ledger(site: PaymentsSite) -> None:
    await site.state.ledger.flush()


async def check(site: PaymentsSite) -> Sequence[str]:
    """Ask the facilitators and the nodes, and compare a day of income."""
    return await site.state.check()


async def findings(site: PaymentsSite) -> Sequence[str]:
    """What went wrong since they last worked."""
    return await site.state.findings()


building = Building(
    state=opened,
    plans=PaymentsPlan,
    http=PricingPages,
    problems=PROBLEMS,
    steps=lambda site: [Sale(site)],
    services=[Service(load_what_the_first_payment_needs)],
    jobs=[
        Job(reconcile_payments, every=RECONCILED_EVERY),
        Job(audit_payments, daily_at=AUDITED_AT),
        Job(wipe_answers, every=MINUTE),
        Job(flush_ledger, every=MINUTE, on="each"),
    ],
    checks=[Check(check), Check(findings, on="ready")],
)
