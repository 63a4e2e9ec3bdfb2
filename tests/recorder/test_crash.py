"""A small part of the fault tests: a killed recorder reports every death and loses no acknowledged beat."""

from pathlib import Path

from recorder.kills import Scene, beat_until_killed, hooks
from recorder.receivers import Authority


def test_killed_at_two_points_it_reports_every_death_under_one_id(tmp_path: Path, authority: Authority) -> None:
    with hooks(authority) as receiver:
        scene = Scene(tmp_path, f"sqlite:{tmp_path}/data", authority, receiver, 20)
        scene.fill()
        for point in ("outbox", "mark"):
            scene.round(point)
        assert scene.verdict()["deaths"] == 2 * scene.count


def test_killed_while_beats_arrive_it_loses_no_acknowledged_beat(tmp_path: Path, authority: Authority) -> None:
    with hooks(authority) as receiver:
        scene = Scene(tmp_path, f"sqlite:{tmp_path}/data", authority, receiver, 1)
        scene.fill()
        scene.give_key()
        acknowledged, _ = beat_until_killed(scene, first=1, seconds=0.4, rate=200)
        assert acknowledged > 4
