"""The buildings of examples/, each through the front doors as its page of docs/ shows it."""

import json
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from commands import command_of
from recorder.receivers import make_authority, open_receiver

from campus.config import read_config
from campus.features.chain import Payer, new_wallet, open_chain, open_facilitator
from campus.outbound.http_clients import guarded_client
from campus.testing import Clock, open_campus
from campus.testing.campus import ORIGIN

pytestmark = pytest.mark.anyio
EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path += [str(EXAMPLES / "survey"), str(EXAMPLES / "watch")]

import campus_watch  # noqa: E402  # beside its pyproject.toml, as it would be installed
import survey  # noqa: E402

TABLE = "port,metres\nbrest,4.5\nnantes,5\nbrest,4\nsete,40\nbrest,4.8\n"


def test_each_example_is_short() -> None:
    hand_written = [path for path in EXAMPLES.rglob("*.py") if "migrations" not in path.parts]
    assert len(hand_written) == 2
    assert [path.name for path in hand_written if len(path.read_text().splitlines()) > 150] == []


async def test_a_profile_of_an_uploaded_table_is_sold_and_a_table_that_cannot_be_read_costs_nothing() -> None:
    payer = Payer(new_wallet())
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        await chain.mint(payer.wallet.address, 1_000_000)
        tables = {"payments": facilitator.table(new_wallet().address)}
        async with open_campus(tables=tables, survey=survey.building) as campus:
            assert (await campus.call("columns", table=TABLE)).data == {"columns": ["port", "metres"], "rows": 5}
            assert (await campus.call("profile", table=TABLE)).status == 402
            refused = await campus.call("profile", table="a,b\n1\n", payer=payer)
            assert (refused.code, await chain.balance(payer.wallet.address)) == ("no_table", 1_000_000)
            port, metres = (await campus.call("profile", table=TABLE, payer=payer)).data["columns"]
            assert await chain.balance(payer.wallet.address) == 980_000
    assert (port["distinct"], port["mean"]) == (3, None)
    assert (metres["median"], metres["outliers"]) == (4.8, ["40"])


def test_a_public_server_is_sold_by_configuration_alone(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    config = EXAMPLES / "wiki/campus.toml"
    assert read_config(config, {}).buildings["wiki"].tools["*"].price == "0.002"
    rows = json.loads(command_of(capsys)("tools", "--config", str(config), "--json").out)
    tiers = {row["tool"]: row["tier"] for row in rows}
    assert (tiers["search_wikipedia"], tiers["get_article"]) == ("free", "key")
    assert not [name for name in tiers if name.startswith(("summarize", "test"))]


async def test_a_page_that_goes_down_is_told_to_those_whose_key_is_valid(tmp_path: Path) -> None:
    page, clock, authority = "https://page.example/", Clock(), make_authority(tmp_path, "localhost")
    feeds = {page: b"fine"}
    web = guarded_client(ORIGIN, allowed_hosts=["localhost"], trust=authority.client)
    async with (
        open_receiver(authority) as receiver,
        open_campus(feeds=feeds, settings={"pages": [page]}, clock=clock, web=web, watch=campus_watch.building) as campus,
    ):

        async def look() -> list[bool]:
            """What the messages say that are sent after the next look at the page."""
            clock.move(timedelta(minutes=5))
            await campus.run("look")
            await campus.site.state.deliver_due()
            return [received.json["pages"][0]["is_up"] for received in receiver.requests]

        await look()
        key = await campus.key("watch")
        assert (await campus.call("tell_me", webhook=receiver.url())).status == 402
        assert (await campus.call("tell_me", webhook=receiver.url(), key=key)).data.startswith("whsec_")
        feed = feeds.pop(page)
        assert await look() == [False]
        feeds[page] = feed
        assert await look() == [False, True]
        (listed,) = await campus.service.keys.list()
        await campus.service.keys.revoke(listed.key.id)
        clock.move(timedelta(seconds=10))
        del feeds[page]
        assert await look() == [False, True]
        assert not (await campus.call("states")).data["pages"][0]["is_up"]
