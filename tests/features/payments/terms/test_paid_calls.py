"""Paid calls on a real chain: x402's client over HTTP, and an MCP client over MCP."""

import json
from base64 import b64encode
from typing import Any

import pytest
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import ToolResult
from features.payments.terms.paid_campus import DAY, DOLLAR, PATH, open_paid_campus
from features.payments.terms.samples import SENTINEL, make_seller
from mcp_types import CallToolRequestParams

from campus.features.chain import PAYMENT, RECEIPT, Payer, headers_of, receipt_of, terms_of
from twins.http.json_reader import LONG_NUMBER, SHAPES

pytestmark = pytest.mark.anyio
HANDSHAKE = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}


async def test_x402s_own_client_pays_over_http_exactly_the_price_and_no_gas() -> None:
    async with open_paid_campus() as paid_campus:
        async with paid_campus.paying() as client:
            answer = await client.get(PATH)
        assert (answer.status_code, answer.json()["text"]) == (200, SENTINEL)
        assert await paid_campus.earned() == 20_000
        assert await paid_campus.chain.balance(paid_campus.payer.wallet.address) == 10 * DOLLAR - 20_000
        assert await paid_campus.chain.gas(paid_campus.payer.wallet.address) == 0
        receipt = receipt_of(answer)
        assert (receipt["success"], receipt["payer"].lower()) == (True, paid_campus.payer.wallet.address.lower())
        assert (await paid_campus.chain.transfers(receiver=paid_campus.payee))[0].transaction == receipt["transaction"]
        assert answer.headers["x-payment-response"] == answer.headers["payment-response"]
        assert "no-store" in answer.headers["cache-control"]


async def test_an_mcp_client_pays_over_mcp_and_the_receipt_is_in_the_meta() -> None:
    async with open_paid_campus() as paid_campus, paid_campus.mcp() as client:
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


async def test_a_client_that_reads_the_terms_in_the_meta_and_sends_base64_pays_over_mcp() -> None:
    async with open_paid_campus() as paid_campus, paid_campus.mcp() as client:
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


async def test_a_resend_gets_the_same_answer_over_either_frame_and_is_charged_once() -> None:
    async with open_paid_campus() as paid_campus, paid_campus.mcp() as client:
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


@pytest.mark.parametrize("first_frame", ["http", "mcp"])
async def test_an_idempotency_key_finds_the_answer_again_whatever_payment_it_comes_with(first_frame: str) -> None:
    key = {"Idempotency-Key": "fV3k9Zq0tLx7Rw2uBn5sYd8A"}
    async with open_paid_campus() as paid_campus, paid_campus.mcp() as client:
        payments = [paid_campus.payer.payload(await paid_campus.terms()) for _ in range(2)]

        async def over_mcp(**meta: Any) -> Any:
            meta["idempotency-key"] = key["Idempotency-Key"]
            return (await client.call_tool("text_of", DAY, meta=meta, raise_on_error=False)).structured_content

        async def over_http(**payment: Any) -> Any:
            return (await paid_campus.campus.http.get(PATH, headers=key | payment)).json()

        first = await (over_http(**headers_of(payments[0])) if first_frame == "http" else over_mcp(**{PAYMENT: payments[0]}))
        assert first["text"] == SENTINEL
        assert await over_http() == await over_mcp() == await over_http(**headers_of(payments[1])) == first
        other = await paid_campus.campus.http.get("/v1/stall/text/2026-01-03", headers=key)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
        short = await paid_campus.campus.http.get(PATH, headers={"Idempotency-Key": "short"})
        assert (short.status_code, short.json()["code"]) == (402, "access_required")
        assert await paid_campus.earned() == 20_000


async def test_a_client_of_the_first_version_pays_by_the_body() -> None:
    async with open_paid_campus() as paid_campus:
        terms = (await paid_campus.campus.http.get(PATH)).json()
        v1 = {"x402Version": 1, "accepts": terms["accepts"], "error": terms["error"]}
        headers = paid_campus.payer.pay_headers(v1)
        assert set(headers) == {"X-PAYMENT"}
        answer = await paid_campus.campus.http.get(PATH, headers=headers)
        assert (answer.status_code, answer.json()["text"], await paid_campus.earned()) == (200, SENTINEL, 20_000)


async def test_a_payment_for_one_call_buys_no_other() -> None:
    async with open_paid_campus() as paid_campus, paid_campus.mcp() as client:
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


async def test_a_call_that_fails_or_does_not_fit_is_not_charged_on_either_frame() -> None:
    async with open_paid_campus() as paid_campus, paid_campus.mcp() as client:
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


async def test_a_secret_answer_requires_the_callers_idempotency_key_on_either_frame() -> None:
    async with open_paid_campus() as paid_campus, paid_campus.mcp() as client:
        body, key = {"product": "stall"}, "d0c5b2f9e6a34871b5f2e9c06d1a7384"
        payment = Payer(paid_campus.payer.wallet, max_dollars=50).payload(
            terms_of(await paid_campus.campus.http.post("/v1/stall/buy", json=body))
        )
        await paid_campus.chain.mint(paid_campus.payer.wallet.address, 20 * DOLLAR)
        for headers, code in (({}, "idempotency_key_required"), ({"Idempotency-Key": "short"}, "weak_idempotency_key")):
            answer = await paid_campus.campus.http.post("/v1/stall/buy", json=body, headers=headers_of(payment) | headers)
            assert (answer.status_code, answer.json()["code"]) == (400, code)
        unknown = await paid_campus.campus.http.post(
            "/v1/stall/buy", json={"product": "x"}, headers=headers_of(payment) | {"Idempotency-Key": key}
        )
        assert unknown.status_code == 422
        assert await paid_campus.earned() == 0
        bought = await paid_campus.campus.http.post("/v1/stall/buy", json=body, headers=headers_of(payment) | {"Idempotency-Key": key})
        assert bought.status_code == 200, bought.text
        again = await client.call_tool("buy", body | {"idempotency_key": key}, meta={PAYMENT: payment}, raise_on_error=False)
        assert again.structured_content == bought.json()
        watcher = await client.call_tool("buy", body | {"idempotency_key": key[::-1]}, meta={PAYMENT: payment}, raise_on_error=False)
        assert (watcher.structured_content or {})["code"] == "payment_already_used"
        in_meta = await client.call_tool("buy", body, meta={PAYMENT: payment, "idempotency-key": key}, raise_on_error=False)
        assert in_meta.structured_content == bought.json()
        assert await paid_campus.earned() == 19 * DOLLAR


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
