"""Services run all the time: what fails is started again, shown until it has run for a while, and stopped with the process."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import anyio
import pytest
from fastmcp import FastMCP
from patience import patience

from campus import Building, Service
from campus.backoff import Backoff
from campus.errors import CampusError
from campus.jobs import ServiceRunner, ServiceTask

pytestmark = pytest.mark.anyio
AT_ONCE = Backoff([timedelta(0)])


def task(run: Callable[[], Awaitable[None]]) -> ServiceTask:
    return ServiceTask("tides", "follow", run)


async def test_a_service_that_fails_is_started_again_and_the_others_go_on() -> None:
    starts, steady, again = [], anyio.Event(), anyio.Event()

    async def failing() -> None:
        starts.append(1)
        if len(starts) == 1:
            raise ValueError("the harbour is closed")
        if len(starts) == 2:
            return
        again.set()
        await anyio.sleep_forever()

    async def going_on() -> None:
        await again.wait()
        steady.set()
        await anyio.sleep_forever()

    runner = ServiceRunner([task(failing), ServiceTask("wiki", "watch", going_on)], restarts=AT_ONCE)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runner.run)
        with anyio.fail_after(patience(20)):
            await steady.wait()
        (sentence,) = runner.findings()["tides"]
        assert sentence.startswith("the service follow failed 2 times in a row: it returned")
        assert "wiki" not in runner.findings()
        tasks.cancel_scope.cancel()


async def test_a_service_that_has_run_for_a_while_is_no_finding_any_more() -> None:
    starts = []

    async def failing_once() -> None:
        starts.append(1)
        if len(starts) == 1:
            raise CampusError("the harbour is closed; try again")
        await anyio.sleep_forever()

    runner = ServiceRunner([task(failing_once)], restarts=AT_ONCE, steady_seconds=patience(0.2))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runner.run)
        await anyio.wait_all_tasks_blocked()
        assert "the harbour is closed; try again" in runner.findings()["tides"][0]
        with anyio.fail_after(patience(20)):
            while runner.findings():  # noqa: ASYNC110  # time alone changes it
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    assert len(starts) == 2


async def test_a_service_is_cancelled_when_the_process_stops() -> None:
    ended = []

    async def cleaning_up() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ServiceRunner([task(cleaning_up)]).run)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert ended == [1]


def test_a_service_is_an_async_function() -> None:
    def follow(site: object) -> None: ...

    with pytest.raises(TypeError, match="the service follow is not async; write async def follow"):
        Service(follow)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="services= takes Service"):
        Building(FastMCP("Test"), services=[follow])  # type: ignore[list-item]
