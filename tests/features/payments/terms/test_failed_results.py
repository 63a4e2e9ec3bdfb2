"""Results of other servers that report a failure are not sold: fails_if in campus.toml marks them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import command_of
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.tools.base import ToolResult
from features.payments.terms.samples import NOBODY_LISTENS, PAY_TO
from mcp_types import TextContent
from serving import free_port, write_config

from campus import Building
from campus.failure_rules import read_rule
from campus.features.chain import Payer, new_wallet, open_chain, open_facilitator
from campus.testing import ORIGIN, open_campus

pytestmark = pytest.mark.anyio
PRICED = {"price": "0.01"}
TOOLS: dict[str, Any] = {
    "weather": PRICED | {"fails_if": "/error"},
    "told": PRICED | {"fails_if": "/error"},
    "texts": PRICED | {"fails_if": {"matches": "^no such"}},
    "state": PRICED | {"fails_if": {"at": "/status/code", "equals": 404}},
}
PAYMENTS = f"""
[payments]
network = "eip155:8453"
pay_to = "{PAY_TO}"
facilitators = ["{NOBODY_LISTENS}"]
rpc_url = "{NOBODY_LISTENS}"
"""
CONFIG = """
[buildings.weather]
server = "foreign_weather:mcp"
tools = { "*" = { price = "0.01" %s } }
"""
FOREIGN = """
from fastmcp import FastMCP
mcp = FastMCP("Weather")
@mcp.tool(annotations={"readOnlyHint": True}%s)
def weather(city: str) -> str:
    "The weather of a city."
    return city
"""


def make_weather() -> Building:
    mcp: FastMCP[Any] = FastMCP("Weather")

    @mcp.tool
    def weather(city: str) -> dict[str, Any]:
        """Weather, or a member that says why there is none."""
        return {"error": "no such city"} if city == "Atlantis" else {"sky": city, "error": None}

    @mcp.tool
    def told(city: str) -> str:
        """The same in a text."""
        return '{"error": "no such city"}' if city == "Atlantis" else "fine"

    @mcp.tool(output_schema=None)
    def texts(city: str) -> ToolResult:
        """The same in a plain text."""
        return ToolResult(content=[TextContent(type="text", text="no such city" if city == "Atlantis" else "fine")])

    @mcp.tool
    def state(city: str) -> dict[str, Any]:
        """The same as a status."""
        return {"status": {"code": 404 if city == "Atlantis" else 200}}

    return Building(mcp)


async def test_a_result_that_reports_a_failure_is_refused_on_both_frames_and_not_charged() -> None:
    payer, payee = Payer(new_wallet()), new_wallet().address
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        await chain.mint(payer.wallet.address, 1_000_000)
        async with (
            open_campus(tools=TOOLS, tables={"payments": facilitator.table(payee)}, weather=make_weather()) as campus,
            payer.http(ORIGIN, transport=httpx.ASGITransport(campus.app)) as http,
            Client(StreamableHttpTransport(f"{ORIGIN}/weather/mcp", httpx_client_factory=campus._client)) as mcp,
        ):
            key = {"Authorization": f"Bearer {await campus.key('weather')}"}
            for tool in TOOLS:
                path = f"/v1/weather/{tool}"
                for failed in (
                    await http.post(path, json={"city": "Atlantis"}),
                    await http.post(path, json={"city": "Atlantis"}, headers=key),
                ):
                    assert (failed.status_code, failed.json()["code"]) == (400, "tool_error"), (tool, failed.text)
                bought = await payer.call_mcp(mcp, tool, {"city": "Atlantis"})
                assert (bought.is_error, (bought.structured_content or {})["code"]) == (True, "tool_error"), tool
            assert facilitator.outcomes("settle") == []
            assert (await http.post("/v1/weather/weather", json={"city": "Rome"})).json() == {"sky": "Rome", "error": None}
            assert not (await payer.call_mcp(mcp, "texts", {"city": "Rome"})).is_error
            assert await chain.balance(payee) == 20_000


Say = Callable[..., str]


@pytest.fixture
def say(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    def said(word: str, config: str, *, meta: str = "") -> str:
        module = f"foreign_{tmp_path.name}"
        (tmp_path / f"{module}.py").write_text(FOREIGN % meta)
        monkeypatch.syspath_prepend(str(tmp_path))
        path = write_config(tmp_path, config.replace("foreign_weather", module), port=free_port())
        answer = command_of(capsys)(word, "--config", str(path))
        return answer.out + answer.err

    return said


@pytest.mark.parametrize(("rule", "is_named"), [("", True), (', fails_if = "/error"', False), (', fails_if = "never"', False)])
def test_the_check_names_foreign_tools_that_are_sold_without_a_rule(say: Say, rule: str, is_named: bool) -> None:
    said = say("check", PAYMENTS + CONFIG % rule)
    assert ("a result of weather that reports a failure is charged" in said) is is_named, said


def test_the_check_leaves_an_author_alone_who_set_the_price_with_campus(say: Say) -> None:
    said = say("check", PAYMENTS + CONFIG.partition("tools =")[0], meta=', meta={"campus": {"price": "0.01"}}')
    assert "reports a failure" not in said, said


@pytest.mark.parametrize("command", ["check", "tools"])
def test_prices_that_nobody_can_pay_are_named_in_a_sentence(say: Say, command: str) -> None:
    said = say(command, CONFIG % "")
    assert "no table [payments]" in said
    assert "weather ($0.01)" in said


@pytest.mark.parametrize("word", ["price", "free", "key", "route", "access"])
def test_a_word_of_campus_at_the_top_of_a_tools_meta_is_refused_with_the_remedy(say: Say, word: str) -> None:
    said = say("tools", CONFIG.partition("tools =")[0], meta=f', meta={{"{word}": "0.01"}}')
    assert f"has '{word}' at the top of its meta" in said
    assert 'meta=access(price="0.01")' in said


@pytest.mark.parametrize("wrong", ["error", {"at": "/x", "is": 1}, {"at": ""}, {"matches": "("}, {"at": "/x", "equals": 1, "matches": "x"}])
def test_a_rule_that_is_none_is_refused_with_the_forms(wrong: Any) -> None:
    with pytest.raises(ValueError, match="write fails_if"):
        read_rule(wrong)
