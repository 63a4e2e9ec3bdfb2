"""The building in a real campus, over HTTP and over MCP. Run it with python -m pytest."""

from datetime import timedelta
from typing import Literal

import pytest
from campus.testing import Clock, open_campus

from campus_example import building


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
@pytest.mark.parametrize("frame", ["http", "mcp"])
async def test_the_newest_number_is_free_and_the_others_need_a_key(frame: Literal["http", "mcp"]) -> None:
    clock = Clock()
    async with open_campus(frame=frame, clock=clock, settings={"highest": 6}, example=building) as campus:
        assert (await campus.call("latest")).code == "nothing_drawn"
        await campus.run("draw")
        clock.move(timedelta(hours=1))
        await campus.run("draw")
        assert 1 <= (await campus.call("latest")).data["number"] <= 6
        assert (await campus.call("history")).status == 402
        assert len((await campus.call("history", key="example")).data["numbers"]) == 2


@pytest.mark.anyio
async def test_the_page_shows_the_numbers() -> None:
    async with open_campus(example=building) as campus:
        await campus.run("draw")
        number = (await campus.call("latest")).data["number"]
        page = await campus.http.get("/example", headers={"Accept": "text/html"})
        assert f'<td class="number">{number}</td>' in page.text
