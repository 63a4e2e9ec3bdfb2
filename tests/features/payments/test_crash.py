"""A short version of the fault runs: a campus killed in the middle of a paid call charges once, answers a resend, and needs none."""

from pathlib import Path

import anyio
import pytest
from features.payments.kills import Scene, verdict

from campus.features.chain import Chain, Facilitator, Payer, Wallet, new_wallet

pytestmark = pytest.mark.anyio
FEW = ("running", "storing", "charged")


@pytest.mark.timeout(180)
async def test_killed_at_three_points_every_payment_is_charged_once_and_answered(
    chain: Chain, facilitator: Facilitator, wallet: Wallet, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, f"sqlite:{tmp_path}/data", chain, facilitator, Payer(wallet))

    def killed_and_resent() -> None:
        scene.prepare()
        for point in FEW:
            scene.kill_at(point)
        with scene.served() as campus:
            for sent in scene.sent:
                scene.resend(campus, sent)

    await anyio.to_thread.run_sync(killed_and_resent)
    assert (await verdict(scene, answered=len(FEW)))["charged and answered"] == len(FEW)
    assert scene.runs() == {1: 2, 2: 2, 3: 1}


@pytest.mark.timeout(180)
async def test_killed_before_its_charge_a_payment_is_charged_by_the_next_process_and_its_payer_finds_the_answer(
    chain: Chain, facilitator: Facilitator, wallet: Wallet, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, f"sqlite:{tmp_path}/data", chain, facilitator, Payer(wallet), pay_to=new_wallet().address)

    def killed_and_left() -> None:
        scene.prepare()
        sent = scene.kill_at("sent_in_vain")
        with scene.served() as campus:
            scene.reconcile(campus)
            assert scene.states() == {sent.nonce: "settled"}
            scene.resend(campus, sent)

    await anyio.to_thread.run_sync(killed_and_left)
    assert (await verdict(scene, answered=1))["charged and answered"] == 1
    assert scene.runs() == {1: 1}
