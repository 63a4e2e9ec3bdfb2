"""A campus whose keys pay for their calls, killed with SIGKILL again and again in the midst of them, on both databases.

Run by `make faults`, and not by `make test`. Leases of killed processes are waited for, as an operator would.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from features.credits.kills import PRICE, SOLD, Scene

pytestmark = [pytest.mark.faults("calls killed"), pytest.mark.both_databases]
KILLS = 20
CALLS = 300


@pytest.mark.timeout(3600)
def test_no_kill_charges_a_call_twice_or_for_nothing(
    tmp_path: Path, storage_url: str, record_property: Callable[[str, object], None]
) -> None:
    scene = Scene(tmp_path, storage_url)
    scene.ask(CALLS)
    for kill in range(KILLS):
        scene.kill_at_random(kill % 7 + 1) if kill % 3 else scene.kill_while_tools_run()
    account = scene.finish()
    record_property("figures", f"{storage_url.partition(':')[0]}: {KILLS} kills, {CALLS} calls, ${account.spent / 1e6} charged")
    assert scene.answered == set(range(CALLS))
    assert (account.spent, account.balance) == (CALLS * PRICE, SOLD - CALLS * PRICE)
