"""The recorder killed with SIGKILL, on both databases: 50 times while 300 monitors go down, and 200 times during 50 beats a second.

Run by `make faults`, and not by `make test`: it takes some twenty minutes. The figures are printed.
"""

from itertools import cycle, islice
from pathlib import Path

import pytest
from recorder.kills import POINTS, KilledRecorder, beat_until_killed, webhook_receiver
from recorder.receivers import make_authority

MONITORS, KILLS = 300, 50
BEATEN, BEATEN_KILLS, BEATS_A_SECOND = 25, 200, 50


@pytest.mark.timeout(1800)
def test_every_outage_is_alerted_under_one_id(tmp_path: Path, storage_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    authority = make_authority(tmp_path)
    with webhook_receiver(authority) as receiver:
        killed = KilledRecorder(tmp_path, storage_url, authority, receiver, MONITORS)
        killed.fill()
        for point in islice(cycle(POINTS), KILLS):
            killed.round(point)
        figures = killed.figures()
        with capsys.disabled():
            print(f"\n{storage_url.partition(':')[0]}: {figures}")
        assert figures["deaths"] == MONITORS * KILLS


@pytest.mark.timeout(1800)
def test_no_acknowledged_beat_or_capsule_is_lost(tmp_path: Path, storage_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    authority = make_authority(tmp_path)
    with webhook_receiver(authority) as receiver:
        killed = KilledRecorder(tmp_path, storage_url, authority, receiver, BEATEN)
        killed.fill()
        killed.give_key()
        total, first = 0, 1
        for _ in range(BEATEN_KILLS):
            acknowledged, first = beat_until_killed(killed, first=first, seconds=0.5, rate=BEATS_A_SECOND)
            total += acknowledged
        with capsys.disabled():
            print(f"\n{storage_url.partition(':')[0]}: {BEATEN_KILLS} kills, {total} beats acknowledged, none lost")
        assert total >= BEATEN_KILLS
