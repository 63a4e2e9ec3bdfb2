"""A simulation of many clients that retry as the cron command does, and of a recorder that is down for a while."""

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from recorder.kills import fill
from recorder.recorders import SECRET, Recorder
from sqlalchemy import select, update

from buildings.recorder.beats.beat import Beat
from buildings.recorder.tables import ALERTS, MONITORS
from campus.secrets import digest_of
from campus.storage import in_snapshot, in_transaction

RETRIES = (1, 2, 4, 8, 16, 32, 64)
"""Seconds between the tries of curl --retry 7."""
STEP = timedelta(seconds=5)
PERIODS, GRACE = (60.0, 120.0, 300.0), timedelta(seconds=30)


@dataclass(frozen=True, order=True)
class Turn:
    """When a client beats, or tries again."""

    at: float
    client: int
    retry: int = 0


async def simulate(
    recorder: Recorder, periods: Sequence[float], *, before: float, outage: float, after: float, silent: frozenset[int]
) -> None:
    chance = random.Random(1)
    turns = [Turn(chance.uniform(0, period), client) for client, period in enumerate(periods)]
    heapq.heapify(turns)
    start, end, passed = before, before + outage, 0.0
    while passed < end + after:
        passed += STEP.total_seconds()
        recorder.clock.move(STEP)
        away = start <= passed < end
        while turns[0].at <= passed:
            turn = heapq.heappop(turns)
            if turn.client in silent and turn.at >= start:
                heapq.heappush(turns, Turn(float("inf"), turn.client))
            elif away:
                again = turn.retry < len(RETRIES)
                wait = RETRIES[turn.retry] if again else max(0.0, periods[turn.client] - sum(RETRIES))
                heapq.heappush(turns, Turn(turn.at + wait, turn.client, turn.retry + 1 if again else 0))
            else:
                await recorder.campus.site.state.beat(Beat(f"mon_{turn.client}", digest_of(SECRET), recorder.clock(), "ok"))
                heapq.heappush(turns, Turn(passed + periods[turn.client], turn.client))
        if not away:
            await recorder.sweep()


async def only_dead_agents_are_reported(recorder: Recorder, *, count: int, outage: float) -> None:
    periods, silent = [PERIODS[number % len(PERIODS)] for number in range(count)], frozenset(range(0, count, 10))
    storage = recorder.campus.site.storage
    await in_transaction(storage, partial(fill, count=count, url="https://localhost{}".format))
    for number, period in enumerate(periods):
        agreed = update(MONITORS).where(MONITORS.c.id == f"mon_{number}").values(period=timedelta(seconds=period), grace=GRACE)
        await in_transaction(storage, lambda connection, agreed=agreed: connection.execute(agreed) and None)
    await recorder.sweep()
    await simulate(recorder, periods, before=400, outage=outage, after=1000, silent=silent)
    dead = select(ALERTS.c.monitor_id).where(ALERTS.c.kind == "dead")
    found = await in_snapshot(storage, lambda connection: connection.scalars(dead).all())
    assert sorted(found) == sorted(f"mon_{number}" for number in silent)
