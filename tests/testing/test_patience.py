"""The time limits of tests grow with the machine's load."""

import os

import pytest
from patience import patience


def test_a_busy_machine_has_more_patience_and_an_idle_one_the_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for load, factor in ((0.1, 1), (2.0, 1), (20.0, 10)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert patience(30) == 30 * factor


def test_the_limit_of_a_test_is_scaled_too(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("timeout")
    assert marker is not None
    assert marker.args[0] >= float(request.config.getini("timeout"))
