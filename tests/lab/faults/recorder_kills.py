"""The recorder killed with SIGKILL, on both databases: 12 times while 300 monitors go down, and 50 times during 50 beats a second.

Run by `make faults`, and not by `make test`: it takes some six minutes.
"""

from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import pytest
from recorder.kills import POINTS, KilledRecorder, beat_until_killed, webhook_receiver
from recorder.receivers import make_authority

MONITORS, KILLS = 300, 12
BEATEN, BEATEN_KILLS, BEATS_A_SECOND = 25, 50, 50


@pytest.mark.timeout(1800)
@pytest.mark.both_databases
@pytest.mark.faults("alerts killed")
def test_every_outage_is_alerted_under_one_id(tmp_path: Path, storage_url: str, record_property: Callable[[str, object], None]) -> None:
    authority = make_authority(tmp_path)
    with webhook_receiver(authority) as receiver:
        killed = KilledRecorder(tmp_path, storage_url, authority, receiver, MONITORS)
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
    authority = make_authority(tmp_path)
    with webhook_receiver(authority) as receiver:
        killed = KilledRecorder(tmp_path, storage_url, authority, receiver, BEATEN)
        killed.fill()
        killed.give_key()
        total, first = 0, 1
        for _ in range(BEATEN_KILLS):
            acknowledged, first = beat_until_killed(killed, first=first, seconds=0.5, rate=BEATS_A_SECOND)
            total += acknowledged
        record_property("figures", f"{storage_url.partition(':')[0]}: {BEATEN_KILLS} kills, {total} beats acknowledged, none lost")
        assert total >= BEATEN_KILLS
