"""Races at length, on both databases: two recorders on one database receive requests at once.

Run by `make faults`, and not by `make test`.
"""

from collections.abc import Callable

import pytest
from recorder.conftest import authority, open_recorder  # noqa: F401  # fixtures
from recorder.races import one_of_five_takeovers, one_of_two_registrations, twenty_of
from recorder.recorders import OpenRecorder

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900), pytest.mark.faults("races"), pytest.mark.both_databases]
ROUNDS, KEYS, TAKEOVERS = 200, 10, 30


async def test_simultaneous_requests_never_exceed_a_limit(
    open_recorder: OpenRecorder,  # noqa: F811  # the fixture
    storage_url: str,
    record_property: Callable[[str, object], None],
) -> None:
    settings = {"monitors_per_host": ROUNDS}
    async with (
        open_recorder(storage=storage_url, settings=settings) as one,
        open_recorder(storage=storage_url, clock=one.clock, settings=settings) as other,
    ):
        recorders = [one, other]
        await one_of_two_registrations(recorders, rounds=ROUNDS)
        for _ in range(KEYS):
            await twenty_of(60, recorders)
        await one_of_five_takeovers(recorders, rounds=TAKEOVERS)
    record_property(
        "figures", f"{storage_url.partition(':')[0]}: {ROUNDS} × 2 claims, {KEYS} × 60 registrations, {TAKEOVERS} × 5 takeovers"
    )
