"""The test payer pays as x402's clients do, over both frames, and signs what a test asks for."""

import time
from base64 import b64decode
from typing import Any

import httpx
import pytest
from fastmcp import FastMCP
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from pydantic_core import from_json
from x402.http.clients.httpx import PaymentError

from campus import Building, access, route
from campus.features.chain import RECEIPT, Chain, Facilitator, Payer, new_wallet, receipt_of
from campus.testing import Frame, open_campus
from twins import raw_result

pytestmark = pytest.mark.anyio
OTHER = "0x00000000000000000000000000000000000000aa"
SOON = int(time.time()) + 3_600


HOSTILE: tuple[tuple[dict[str, Any], str], ...] = (
    ({"value": 1}, "invalid_exact_evm_payload_authorization_value_mismatch"),
    ({"to": OTHER}, "invalid_exact_evm_payload_recipient_mismatch"),
    ({"valid_before": 5}, "invalid_exact_evm_payload_authorization_valid_before"),
    ({"valid_after": SOON, "valid_before": SOON + 60}, "invalid_exact_evm_payload_authorization_valid_after"),
    ({"network": "eip155:1"}, "network_mismatch"),
    ({"asset": OTHER}, "invalid_exact_evm_payload_signature"),
    ({"extra": {"name": "Dollar", "version": "1"}}, "invalid_exact_evm_payload_signature"),
    ({"sender": OTHER}, "invalid_exact_evm_payload_signature"),
    ({"signature": "0x" + "11" * 65}, "invalid_exact_evm_failed_to_verify_signature"),
)


async def test_a_hostile_payment_is_signed_as_changed(seller: Any, payer: Payer) -> None:
    for changes, reason in HOSTILE:
        verdict = (await seller.ask("verify", payer.payload(seller.terms, **changes))).json()
        assert (verdict["isValid"], verdict["invalidReason"]) == (False, reason), changes


async def test_a_nonce_may_be_chosen(seller: Any, payer: Payer) -> None:
    payment = payer.payload(seller.terms, nonce="0x" + "ab" * 32)
    assert payment["payload"]["authorization"]["nonce"] == "0x" + "ab" * 32
    assert (await seller.ask("verify", payment)).json()["isValid"]


async def test_what_a_payment_says_may_differ_from_what_it_signs(seller: Any, payer: Payer) -> None:
    payment = payer.payload(seller.terms, amount=5, resource="https://seller.test/other")
    assert (payment["accepted"]["amount"], payment["resource"]["url"]) == ("5", "https://seller.test/other")
    assert payment["payload"]["authorization"]["value"] == "20000"


async def test_an_unknown_change_is_named(seller: Any, payer: Payer) -> None:
    with pytest.raises(TypeError, match="unknown changes: colour; the changes are: sender, to, value"):
        payer.payload(seller.terms, colour="red")


async def test_terms_of_version_1_are_paid_in_its_own_header(seller: Any, payer: Payer) -> None:
    two = seller.terms["accepts"][0]
    one = {
        **two,
        "network": "base",
        "maxAmountRequired": two["amount"],
        "resource": "https://seller.test/thing",
        "description": "",
        "mimeType": "application/json",
    }
    headers = payer.pay_headers({"x402Version": 1, "error": "", "accepts": [one]}, value=7)
    sent = from_json(b64decode(headers["X-PAYMENT"]))
    assert (sent["x402Version"], sent["network"], sent["payload"]["authorization"]["value"]) == (1, "base", "7")


def priced(price: str) -> Building:
    server = FastMCP("stall")

    @server.tool(meta=access(price=price) | route("GET /v1/stall/thing"), annotations={"readOnlyHint": True})
    def thing(colour: str = "red") -> dict[str, str]:
        """A thing."""
        return {"thing": colour}

    return Building(server)


@pytest.mark.parametrize("frame", ["http", "mcp"])
async def test_a_result_that_is_not_as_published_is_not_charged(chain: Chain, facilitator: Facilitator, payer: Payer, frame: Frame) -> None:
    payee = new_wallet()
    server = FastMCP("stall")

    @server.tool(meta=access(price="0.02"), annotations={"readOnlyHint": True})
    def thing() -> str:
        """A thing, which is lost."""
        return None  # type: ignore[return-value]  # on purpose

    async with open_campus(frame=frame, tables={"payments": facilitator.table(payee.address)}, stall=Building(server)) as campus:
        with pytest.raises(AssertionError, match="thing: the tool's result is not what it publishes"):
            await campus.call("thing", payer=payer)
    assert await chain.transfers(receiver=payee.address) == []


@pytest.mark.parametrize("frame", ["http", "mcp"])
async def test_a_campus_is_paid_over_its_frame(chain: Chain, facilitator: Facilitator, payer: Payer, frame: Frame) -> None:
    payee = new_wallet()
    async with open_campus(frame=frame, tables={"payments": facilitator.table(payee.address)}, stall=priced("0.02")) as campus:
        refused = await campus.call("thing", colour="blue")
        assert (refused.status, refused.receipt) == (402, None)
        assert refused.terms is not None
        payment = payer.payload(refused.terms)
        first = await campus.call("thing", colour="blue", payment=payment)
        again = await campus.call("thing", colour="blue", payment=payment)
        other = await campus.call("thing", colour="green", payer=payer)
    assert (first.data, other.data) == ({"thing": "blue"}, {"thing": "green"})
    assert (again.data, again.receipt) == (first.data, first.receipt)
    assert first.receipt is not None
    assert first.receipt["payer"].lower() == payer.wallet.address.lower()
    assert [moved.amount for moved in await chain.transfers(receiver=payee.address)] == [20_000, 20_000]


async def test_x402_clients_pay_up_to_a_dollar_unless_their_limit_is_raised(chain: Chain, facilitator: Facilitator, payer: Payer) -> None:
    payee = new_wallet()
    async with open_campus(tables={"payments": facilitator.table(payee.address)}, stall=priced("2")) as campus:
        app = httpx.ASGITransport(campus.app)
        async with payer.http("http://campus.test", transport=app) as client:
            with pytest.raises(PaymentError):
                await client.get("/v1/stall/thing")
        async with payer.http("http://campus.test", transport=app, max_dollars=5) as client:
            answer = await client.get("/v1/stall/thing")
        bold = Payer(payer.wallet, max_dollars=5)
        async with campus.mcp() as mcp:
            result = await bold.call_mcp(mcp, "thing", {"colour": "blue"})
    assert (answer.json(), receipt_of(answer)["success"]) == ({"thing": "red"}, True)
    assert (result.structured_content, (result.meta or {})[RECEIPT]["success"]) == ({"thing": "blue"}, True)
    assert await chain.balance(payee.address) == 4_000_000
    assert await chain.gas(payer.wallet.address) == 0


class Loose(Tool):
    """A tool whose output schema is no object."""

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        return raw_result({"thing": 1})


@pytest.mark.parametrize("frame", ["http", "mcp"])
async def test_a_sold_result_of_no_object_schema_is_the_same_when_it_is_asked_for_again(
    facilitator: Facilitator, payer: Payer, frame: Frame
) -> None:
    schema = {"anyOf": [{"type": "object"}, {"type": "array"}]}
    tool = Loose(name="loose", parameters={"type": "object", "properties": {}}, output_schema=schema, meta=access(price="0.02"))
    seller = Building(FastMCP("stall", tools=[tool]))
    async with open_campus(frame=frame, tables={"payments": facilitator.table(new_wallet().address)}, stall=seller) as campus:
        refused = await campus.call("loose")
        assert refused.terms is not None
        payment = payer.payload(refused.terms)
        answers = [await campus.call("loose", payment=payment) for _ in range(2)]
        bodies = [(await campus.http.post("/v1/stall/loose", json={}, headers=payer.pay_headers(refused.terms))).json() for _ in range(2)]
    assert [each.data for each in answers] == [{"thing": 1}] * 2
    assert answers[0].receipt == answers[1].receipt is not None
    assert bodies == [{"result": {"thing": 1}}] * 2
