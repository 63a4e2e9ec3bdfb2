"""What credits give a campus: the step that spends them, what keeps and releases holds, and the audit of all accounts."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio

from campus.building import Building, Check, Job, Service
from campus.catalog.parts import FeatureSite
from campus.clock_steps import ClockSteps
from campus.features.credits.accounts import Accounts
from campus.features.credits.holds import LEASE, Holds, made
from campus.features.credits.step import Credits

CreditsSite = FeatureSite[None, Accounts]
PROBLEMS = {
    "credits_used_up": "The key has used up its calls of the day or month, and has no credits left for this one. Nothing was charged.",
    "answer_not_kept": "The call with this Idempotency-Key was charged and answered, and its answer was too large to be kept.",
    "call_in_flight": "A call with the same Idempotency-Key runs, or took too long. Send it again after Retry-After: it is charged once.",
}


@asynccontextmanager
async def opened(site: FeatureSite[None, None]) -> AsyncIterator[Accounts]:
    async with site.storage.batch(made, by_row=made) as put:
        holds = Holds(site.storage, put, now=site.clock, steps=ClockSteps(site.clock, site.elapsed))
        accounts = Accounts(site.storage, site.config.meters, now=site.clock, holds=holds)
        await accounts.look()
        yield accounts


def steps(site: CreditsSite) -> Sequence[Credits]:
    """None where every key opens any number of calls: then no call is asked about."""
    return [Credits(site.state, site.feature("usage"), site.paywall, site.metrics, site.clock)] if site.state.is_used else []


async def keep_holds(site: CreditsSite) -> None:
    """Renew the leases of the calls that run here, and release those of processes that are gone."""
    if site.state.is_used:
        await site.state.holds.release_lapsed(alone=site.alone)
        await LEASE.keep(site.state.holds.keep, of="calls that keys pay for")
    await anyio.sleep_forever()


async def delete_answers(site: CreditsSite) -> bool:
    return await site.state.holds.delete_answers() > 0


async def audit(site: CreditsSite) -> Sequence[str]:
    return await site.state.findings()


building = Building(
    state=opened,
    steps=steps,
    services=[Service(keep_holds)],
    jobs=[Job(delete_answers, every=timedelta(hours=1))],
    checks=[Check(audit), Check(audit, on="audit")],
    problems=PROBLEMS,
)
