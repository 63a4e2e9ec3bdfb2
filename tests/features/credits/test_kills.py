"""A process that is killed while keys pay for its calls charges for no call twice, for none that failed, and loses no credits."""

from pathlib import Path

import pytest
from features.credits.kills import PRICE, SOLD, Scene

CALLS = 40


@pytest.mark.both_databases
def test_each_call_is_charged_once_however_often_its_process_was_killed(tmp_path: Path, storage_url: str) -> None:
    scene = Scene(tmp_path, storage_url)
    scene.ask(CALLS)
    scene.kill_while_tools_run()
    scene.lapse()
    scene.kill_at_random(5)
    scene.lapse()
    account = scene.finish()
    assert scene.answered == set(range(CALLS))
    assert (account.spent, account.balance) == (CALLS * PRICE, SOLD - CALLS * PRICE)
