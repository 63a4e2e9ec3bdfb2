"""A campus with payments, killed with SIGKILL four times at every point of a paid call, on both databases.

Run by `make faults`, and not by `make test`: it takes some ten minutes. Every fourth payment is never sent
again: it is charged nevertheless if its answer was stored. The others are, some seconds later, when their process is known to be gone.
"""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from features.payments.kills import POINTS, Scene, verdict

from campus.features.chain import Payer, new_wallet, open_chain, open_facilitator

pytestmark = [pytest.mark.anyio, pytest.mark.faults("calls killed"), pytest.mark.both_databases]
KILLS = 4
BATCH = 4
"""Payments that are sent again together, long before the first one's authorization ends, on a slow machine too."""
FORSAKEN = 4
UNANSWERED = ("checking", "running", "storing")
"""The points at which there is no answer yet."""
PURSE = 100_000_000
BEYOND_EVERY_AUTHORIZATION = 1_000


@pytest.mark.timeout(7200)
async def test_no_kill_charges_twice_or_without_an_answer_or_leaves_a_payment_stuck(
    tmp_path: Path, storage_url: str, record_property: Callable[[str, object], None]
) -> None:
    wallet = new_wallet()
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        await chain.mint(wallet.address, PURSE)
        scene = Scene(tmp_path, storage_url, chain, facilitator, Payer(wallet))
        await anyio.to_thread.run_sync(scene.prepare)
        for point in [point for point in POINTS for _ in range(KILLS // BATCH)]:
            answered = await anyio.to_thread.run_sync(kill_and_resend, scene, point)
            assert answered == BATCH - BATCH // FORSAKEN
        await chain.advance(BEYOND_EVERY_AUTHORIZATION)
        await anyio.to_thread.run_sync(reconcile, scene)
        figures = await verdict(scene, answered=len(POINTS) * (KILLS - KILLS // FORSAKEN))
        record_property("figures", f"{storage_url.partition(':')[0]}: {figures}")
        assert all(scene.hits[point] == KILLS for point in POINTS)


def kill_and_resend(scene: Scene, point: str) -> int:
    """Kill at one point again and again, then send the payments again; returns how many were answered."""
    sent = [scene.kill_at(point) for _ in range(BATCH)]
    come_back = [each for number, each in enumerate(sent, start=1) if number % FORSAKEN]
    with scene.served() as campus:
        for each in come_back:
            scene.resend(campus, each)
        scene.reconcile(campus)
    states = scene.states()
    left = {states.get(each.nonce, "released") for each in sent if each not in come_back}
    assert left == {"released" if point in UNANSWERED else "settled"}
    return len(come_back)


def reconcile(scene: Scene) -> None:
    """Resolve the payments that were not sent again."""
    with scene.served() as campus:
        scene.reconcile(campus)
