"""A campus for each module, which its tests call from addresses of their own; and both frames."""

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count

import pytest
from features.payments.terms.paid_campus import PaidCampus, called_from, open_paid_campus
from features.payments.terms.samples import Shop, open_seller, shipped

from campus.testing import Frame, TestCampus

numbers = count(1)


@pytest.fixture(params=["http", "mcp"])
def frame(request: pytest.FixtureRequest) -> Frame:
    frame: Frame = request.param
    return frame


@pytest.fixture(scope="module")
async def its_campus() -> AsyncIterator[TestCampus]:
    async with open_seller() as campus:
        yield campus


@pytest.fixture
def address() -> str:
    """Where the test's calls come from: what is counted for an address is not shared by tests."""
    number = next(numbers)
    return f"10.9.{number // 250}.{number % 250}"


@pytest.fixture
async def campus(its_campus: TestCampus, address: str, request: pytest.FixtureRequest) -> AsyncIterator[TestCampus]:
    """One that takes payments which nobody charges, over the test's frame if it has one."""
    async with called_from(its_campus, address) as campus:
        yield replace(campus, frame=request.getfixturevalue("frame")) if "frame" in request.fixturenames else campus


@pytest.fixture(scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    async with shipped(tmp_path_factory.mktemp("shop")) as opened:
        yield opened


@pytest.fixture(scope="module")
async def its_paid_campus() -> AsyncIterator[PaidCampus]:
    async with open_paid_campus() as paid_campus:
        yield paid_campus


@pytest.fixture
async def paid_campus(its_paid_campus: PaidCampus, address: str) -> AsyncIterator[PaidCampus]:
    """One with a real chain and facilitator, which nobody has called yet, and a payer with funds."""
    async with its_paid_campus.as_new(address) as paid_campus:
        yield paid_campus
