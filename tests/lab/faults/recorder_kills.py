"""The recorder killed with SIGKILL, on both databases: 12 times while 300 monitors go down, and 50 times during 50 beats a second.

And 50 agents that die, or freeze and wake up after their takeover, while they do work that writes ahead.

Run by `make faults`, and not by `make test`: it takes some six minutes.
"""

from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from random import Random

import pytest
from recorder.conftest import authority, open_recorder  # noqa: F401  # fixtures
from recorder.kills import POINTS, KilledRecorder, beat_until_killed, webhook_receiver
from recorder.receivers import make_authority
from recorder.recorders import OpenRecorder
from recorder.served import served
from recorder.write_ahead import check, open_store, outlived

MONITORS, KILLS = 300, 12
BEATEN, BEATEN_KILLS, BEATS_A_SECOND = 25, 50, 50
DEATHS = 50


@pytest.mark.timeout(1800)
@pytest.mark.both_databases
@pytest.mark.faults("alerts killed")
def test_every_outage_is_alerted_under_one_id(tmp_path: Path, storage_url: str, record_property: Callable[[str, object], None]) -> None:
    signer = make_authority(tmp_path)
    with webhook_receiver(signer) as receiver:
        killed = KilledRecorder(tmp_path, storage_url, signer, receiver, MONITORS)
        killed.fill()
        for point in islice(cycle(POINTS), KILLS):
            killed.round(point)
        figures = killed.figures()
        record_property("figures", f"{storage_url.partition(':')[0]}: {figures}")
        assert figures["deaths"] == MONITORS * KILLS


@pytest.mark.timeout(1800)
@pytest.mark.both_databases
@pytest.mark.faults("beats killed")
def test_no_acknowledged_beat_or_capsule_is_lost(tmp_path: Path, storage_url: str, record_property: Callable[[str, object], None]) -> None:
    signer = make_authority(tmp_path)
    with webhook_receiver(signer) as receiver:
        killed = KilledRecorder(tmp_path, storage_url, signer, receiver, BEATEN)
        killed.fill()
        killed.give_key()
        total, first = 0, 1
        for _ in range(BEATEN_KILLS):
            acknowledged, first = beat_until_killed(killed, first=first, seconds=0.5, rate=BEATS_A_SECOND)
            total += acknowledged
        record_property("figures", f"{storage_url.partition(':')[0]}: {BEATEN_KILLS} kills, {total} beats acknowledged, none lost")
        assert total >= BEATEN_KILLS


@pytest.mark.timeout(900)
@pytest.mark.both_databases
@pytest.mark.anyio
@pytest.mark.faults("agents killed")
async def test_work_of_fifty_agents_that_die_is_done_once_and_in_order(
    open_recorder: OpenRecorder,  # noqa: F811  # the fixture
    storage_url: str,
    record_property: Callable[[str, object], None],
) -> None:
    async with open_recorder(storage=storage_url) as recorder, served(recorder) as (address, _):
        with open_store() as store:
            lives = await outlived(recorder, address, store, deaths=DEATHS, chance=Random(50))
    record_property("figures", f"{storage_url.partition(':')[0]}: {check(lives, store, deaths=DEATHS)}")
