"""Paid calls on a real chain: x402's client over HTTP, and an MCP client over MCP."""

import json
from base64 import b64encode
from typing import Any

import pytest
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import ToolResult
from features.payments.terms.paid_campus import DAY, DOLLAR, PATH, PaidCampus, open_paid_campus
from features.payments.terms.samples import SENTINEL, make_seller
from mcp_types import CallToolRequestParams

from campus.features.chain import PAYMENT, RECEIPT, headers_of, receipt_of, terms_of
from twins.http.json_reader import LONG_NUMBER, SHAPES

pytestmark = pytest.mark.anyio
HANDSHAKE = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}


async def test_x402s_own_client_pays_over_http_exactly_the_price_and_no_gas(paid_campus: PaidCampus) -> None:
    async with paid_campus.paying() as client:
        answer = await client.get(PATH)
    assert (answer.status_code, answer.json()["text"]) == (200, SENTINEL)
    assert await paid_campus.earned() == 20_000
    assert await paid_campus.chain.balance(paid_campus.payer.wallet.address) == 10 * DOLLAR - 20_000
    assert await paid_campus.chain.gas(paid_campus.payer.wallet.address) == 0
    receipt = receipt_of(answer)
    assert (receipt["success"], receipt["payer"].lower()) == (True, paid_campus.payer.wallet.address.lower())
    assert (await paid_campus.chain.transfers(receiver=paid_campus.payee))[-1].transaction == receipt["transaction"]
    assert answer.headers["x-payment-response"] == answer.headers["payment-response"]
    assert "no-store" in answer.headers["cache-control"]


async def test_an_mcp_client_pays_over_mcp_and_the_receipt_is_in_the_meta(paid_campus: PaidCampus) -> None:
    async with paid_campus.mcp() as client:
        result = await paid_campus.payer.call_mcp(client, "text_of", DAY)
        assert not result.is_error, result
        assert result.structured_content is not None
        assert result.structured_content["text"] == SENTINEL
        assert result.meta is not None
        assert result.meta[RECEIPT]["success"] is True
        assert await paid_campus.earned() == 20_000
        for tool, arguments, wanted in (("words", {"many": [1, 2]}, {"result": [1, 2]}), ("said", {"text": "x"}, None)):
            result = await paid_campus.payer.call_mcp(client, tool, arguments)
            assert (result.is_error, result.structured_content) == (False, wanted)
        assert result.content[0].text == f"{SENTINEL}x"
        assert await paid_campus.earned() == 40_000


async def test_a_refusal_and_a_bought_answer_over_mcp_are_made_without_the_server_behind() -> None:
    async with open_paid_campus(direct_mcp="explain") as paid_campus:

        async def call(arguments: dict[str, Any], meta: dict[str, Any]) -> tuple[str, dict[str, Any]]:
            message = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "text_of", "arguments": arguments, "_meta": meta},
            }
            answer = await paid_campus.campus.http.post("/stall/mcp", json=message, headers=HANDSHAKE)
            return answer.headers["x-mcp-answered-by"], json.loads(answer.text.partition("data: ")[2])["result"]

        by, refused = await call(DAY, {})
        assert (by, refused["isError"], refused["structuredContent"]["status"]) == ("twins", True, 402)
        signed = (paid_campus.payer.payload(refused["structuredContent"]) for _ in range(20))
        # one signature in a hundred has so many digits in a row that the server behind reads the JSON
        payment = next(one for one in signed if LONG_NUMBER not in json.dumps(one).encode().translate(SHAPES))
        for _ in range(2):
            by, bought = await call(DAY, {PAYMENT: payment})
            assert (by, bought["isError"], bought["structuredContent"]["text"]) == ("twins", False, SENTINEL)
            assert json.loads(bought["content"][0]["text"]) == bought["structuredContent"]
            assert bought["_meta"][RECEIPT]["success"] is True
        by, invalid = await call({"day": "no day"}, {PAYMENT: paid_campus.payer.payload(refused["structuredContent"])})
        assert (by, invalid["structuredContent"]["status"]) == ("twins", 422)
        assert await paid_campus.earned() == 20_000


async def test_a_client_that_reads_the_terms_in_the_meta_and_sends_base64_pays_over_mcp(paid_campus: PaidCampus) -> None:
    async with paid_campus.mcp() as client:
        unpaid = await client.call_tool("text_of", DAY, raise_on_error=False)
        terms = (unpaid.meta or {})["x402/error"]
        assert (terms["x402Version"], terms["accepts"]) == (2, (unpaid.structured_content or {})["accepts"])
        payment = b64encode(json.dumps(paid_campus.payer.payload(terms)).encode()).decode()
        result = await client.call_tool("text_of", DAY, meta={PAYMENT: payment}, raise_on_error=False)
        assert not result.is_error, result
        assert (result.meta or {})[RECEIPT]["success"] is True
        assert await paid_campus.earned() == 20_000


async def test_facilitators_get_every_address_in_checksum_spelling_whatever_the_payer_and_campus_toml_write() -> None:
    async with open_paid_campus(lower_case=True) as paid_campus:
        payment = paid_campus.payer.payload(terms := await paid_campus.terms())
        authorization = payment["payload"]["authorization"]
        authorization |= {name: authorization[name].lower() for name in ("from", "to")}
        assert (await paid_campus.offer("http", payment))[0] == 200
        assert terms["accepts"][0]["payTo"] == paid_campus.payee
        for body in paid_campus.facilitator.bodies:
            sent = body["paymentPayload"]
            assert body["paymentRequirements"]["payTo"] == sent["accepted"]["payTo"] == paid_campus.payee
            signed = sent["payload"]["authorization"]
            assert (signed["from"], signed["to"]) == (paid_campus.payer.wallet.address, paid_campus.payee)


async def test_a_resend_gets_the_same_answer_over_either_frame_and_is_charged_once(paid_campus: PaidCampus) -> None:
    async with paid_campus.mcp() as client:
        payment = paid_campus.payer.payload(await paid_campus.terms())
        first = await paid_campus.campus.http.get(PATH, headers=headers_of(payment))
        again = await paid_campus.campus.http.get(PATH, headers=headers_of(payment))
        other = await client.call_tool("text_of", DAY, meta={PAYMENT: payment}, raise_on_error=False)
        assert (first.status_code, first.content, receipt_of(first)) == (200, again.content, receipt_of(again))
        assert other.structured_content == first.json()
        assert other.meta is not None
        assert other.meta[RECEIPT] == receipt_of(first)
        said = paid_campus.payer.payload((await client.call_tool("said", {"text": "x"}, raise_on_error=False)).structured_content or {})
        results = [await client.call_tool("said", {"text": "x"}, meta={PAYMENT: said}, raise_on_error=False) for _ in range(2)]
        assert [result.content[0].text for result in results] == [f"{SENTINEL}x"] * 2
        assert await paid_campus.earned() == 30_000


async def test_a_client_of_the_first_version_pays_by_the_body(paid_campus: PaidCampus) -> None:
    terms = (await paid_campus.campus.http.get(PATH)).json()
    v1 = {"x402Version": 1, "accepts": terms["accepts"], "error": terms["error"]}
    headers = paid_campus.payer.pay_headers(v1)
    assert set(headers) == {"X-PAYMENT"}
    answer = await paid_campus.campus.http.get(PATH, headers=headers)
    assert (answer.status_code, answer.json()["text"], await paid_campus.earned()) == (200, SENTINEL, 20_000)


async def test_a_payment_for_one_call_buys_no_other(paid_campus: PaidCampus) -> None:
    async with paid_campus.mcp() as client:
        payment = paid_campus.payer.payload(await paid_campus.terms())
        others = ("/v1/stall/text/2026-01-03", f"{PATH}?lang=fr", "/v1/stall/words?many=1")
        for path in others:
            answer = await paid_campus.campus.http.get(path, headers=headers_of(payment))
            assert (answer.status_code, answer.json()["code"]) == (402, "payment_refused"), path
            assert SENTINEL not in answer.text
        result = await client.call_tool("text_of", {"day": "2026-01-03"}, meta={PAYMENT: payment}, raise_on_error=False)
        assert (result.structured_content or {})["code"] == "payment_refused"
        assert await paid_campus.earned() == 0
        assert (await paid_campus.campus.http.get(PATH, headers=headers_of(payment))).status_code == 200
        for path in others[:2]:
            assert (await paid_campus.campus.http.get(path, headers=headers_of(payment))).json()["code"] == "payment_already_used"
        assert await paid_campus.earned() == 20_000


async def test_a_call_that_fails_or_does_not_fit_is_not_charged_on_either_frame(paid_campus: PaidCampus) -> None:
    async with paid_campus.mcp() as client:
        for text, code in (("unlucky", "unlucky"), ("crash", "internal_error")):
            unpaid = await paid_campus.campus.http.post("/v1/stall/text", json={"text": text})
            headers = paid_campus.payer.pay_headers(terms_of(unpaid))
            assert (await paid_campus.campus.http.post("/v1/stall/text", json={"text": text}, headers=headers)).json()["code"] == code
            result = await paid_campus.payer.call_mcp(client, "write_text", {"text": text})
            assert (result.structured_content or {})["code"] == code
        silent = await paid_campus.payer.call_mcp(client, "said", {"text": "silent"})
        assert silent.is_error
        asked = len(paid_campus.facilitator.calls)
        headers = paid_campus.payer.pay_headers(await paid_campus.terms())
        assert (await paid_campus.campus.http.get("/v1/stall/text/soon", headers=headers)).json()["code"] == "invalid_request"
        wrong = await paid_campus.payer.call_mcp(client, "text_of", {"day": "soon"})
        assert (wrong.structured_content or {})["code"] == "invalid_request"
        assert len(paid_campus.facilitator.calls) == asked
        assert paid_campus.facilitator.outcomes("settle") == []
        assert await paid_campus.earned() == 0


class Shouting(Middleware):
    """An author's own middleware: twins reach its tools through the server."""

    async def on_call_tool(
        self, context: MiddlewareContext[CallToolRequestParams], call_next: CallNext[CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        result = await call_next(context)
        result.structured_content = {"text": (result.structured_content or {})["text"].upper()}
        return result


async def test_a_call_through_its_authors_middleware_is_admitted_and_charged_once_on_either_frame() -> None:
    seller = make_seller()
    seller.server.add_middleware(Shouting())  # type: ignore[union-attr]  # a server, not a factory
    async with open_paid_campus(seller) as paid_campus, paid_campus.mcp() as client:
        async with paid_campus.paying() as http:
            answer = await http.get(PATH)
        result = await paid_campus.payer.call_mcp(client, "text_of", DAY)
        assert answer.json() == result.structured_content == {"text": SENTINEL.upper()}
        assert paid_campus.facilitator.outcomes("settle") == ["settled", "settled"]
        assert await paid_campus.earned() == 40_000
        headers = paid_campus.payer.pay_headers(await paid_campus.terms("/v1/stall/text/soon"))
        assert (await paid_campus.campus.http.get("/v1/stall/text/soon", headers=headers)).status_code == 422
        wrong = await paid_campus.payer.call_mcp(client, "text_of", {"day": "soon"})
        assert (wrong.structured_content or {})["code"] == "invalid_request"
        assert await paid_campus.earned() == 40_000
