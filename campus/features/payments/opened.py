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
from campus.features.payments.reservations import delete_expired, delete_released
from campus.features.payments.sale import Sale
from campus.features.payments.setup import Payments, open_payments

RECONCILED_EVERY = timedelta(seconds=15)
AUDITED_AT = "03:20"
AUDITED_BACK = timedelta(days=3)
"""How far back the daily audit goes: a node that was down for a weekend leaves no gap."""
MINUTE = timedelta(minutes=1)
PROBLEMS = {
    "invalid_payment": "What was sent as a payment cannot be read as one: broken, too large, or of the other version. Nothing is charged.",
    "payment_refused": "The payment does not fit the terms or is not valid; `error` says why, and the terms are fresh. Nothing is charged.",
    "payment_unverified": "The facilitator cannot be reached. Nothing is charged; send the same payment again after Retry-After.",
    "payment_in_flight": "The payment is being processed, or its outcome is not known yet. Send the same payment again after Retry-After.",
    "payment_already_used": "The payment was spent: on another call, with another key, or too long ago. Sign a new one.",
    "key_not_sold": "The key cannot be sold or renewed as requested; `detail` says why. Nothing was charged.",
    "too_many_payments": "Too many payments of the address are being processed. Nothing was done with this one; send fewer at once.",
    "too_many_worthless_payments": "Too many payments of the address or wallet were refused within a minute. This one was not looked at.",
    "payments_busy": "The payment's turn to be checked did not come in time. Nothing is charged; send it again after Retry-After.",
    "payment_used_elsewhere": "The payment was spent by a call from another address, without an Idempotency-Key. Resend from that address.",
    "idempotency_key_required": "The answer is a secret: pay for it with an Idempotency-Key of 22 or more random characters.",
    "idempotency_key_ambiguous": "Several wallets bought with the Idempotency-Key; send it with a payment signed by the one that paid.",
}
PaymentsSite = FeatureSite[PaymentsTable | None, Payments]
log = logging.getLogger(__name__)


@asynccontextmanager
async def opened(site: FeatureSite[PaymentsTable | None, None]) -> AsyncIterator[Payments | None]:
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
    return await site.state.check()


async def findings(site: PaymentsSite) -> Sequence[str]:
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
