"""A campus with [connect] on: two buildings with keys of their own and the gateway; and a client that connects to them."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Literal

import httpx
import pytest
from fastmcp import FastMCP
from features.connect.chat_app import ORIGIN, ChatApp
from pages.harbour import make_harbour

from buildings.gateway import building as gateway
from campus import Building, Caller, CurrentCaller, access
from campus.testing import Clock, TestCampus, open_campus
from tests import patient

CONNECT = {"server": {"public_url": ORIGIN, "openapi": "harbour"}, "connect": {}}


def make_lock() -> Building:
    mcp = FastMCP("Lock & Weir")

    @mcp.tool(meta=access())
    async def whoami(caller: Caller = CurrentCaller()) -> str:
        """The lineage of the caller's key."""
        return caller.key.lineage if caller.key else "nobody"

    return Building(mcp)


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
async def campus(clock: Clock) -> AsyncIterator[TestCampus]:
    """One for all tests of a module, each of which has keys of its own."""
    async with open_campus(harbour=make_harbour(), lock=make_lock(), gateway=gateway, clock=clock, tables=CONNECT) as opened:
        yield opened


@pytest.fixture
async def app(campus: TestCampus, clock: Clock) -> AsyncIterator[ChatApp]:
    clock.move(timedelta(minutes=1))
    async with patient.AsyncClient(transport=httpx.ASGITransport(campus.app), base_url=ORIGIN) as http:
        yield ChatApp(http)
