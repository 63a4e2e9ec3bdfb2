"""The 402: the terms that x402's clients read, on both frames, from configuration alone."""

import cProfile
import json
import pstats
from base64 import b64decode
from dataclasses import replace
from typing import Any

import httpx
import jsonschema
import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StreamableHttpTransport
from features.payments.terms.samples import PAY_TO, PAYMENTS, READ_ONLY, SENTINEL, header, make_seller, open_seller, payment_v2
from x402 import x402Client, x402ResourceServer
from x402.http import x402HTTPClient
from x402.http.clients.httpx import PaymentError, x402AsyncTransport
from x402.http.utils import decode_payment_required_header
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.schemas import (
    PaymentRequired,
    PaymentRequiredContext,
    PaymentRequiredHeadersResult,
    ResourceConfig,
    SupportedKind,
    SupportedResponse,
)
from x402.schemas.v1 import PaymentRequiredV1

from campus import Building, access, route
from campus.features.payments.wire import TERMS_META
from campus.testing import Frame, TestCampus, open_campus
from tests import patient

pytestmark = pytest.mark.anyio
DAY = {"day": "2026-01-02"}
FRAMES: tuple[Frame, Frame] = ("http", "mcp")


def over(campus: TestCampus, building: str = "stall") -> StreamableHttpTransport:
    return StreamableHttpTransport(f"http://campus.test/{building}/mcp", httpx_client_factory=campus._client)


async def terms_of(campus: TestCampus, tool: str, **arguments: Any) -> dict[str, Any]:
    reply = await campus.call(tool, **arguments)
    assert reply.status == 402, reply.data
    terms: dict[str, Any] = json.loads(b64decode(reply.headers["payment-required"])) if campus.frame == "http" else reply.data
    return terms


async def test_the_terms_are_the_same_on_both_frames_and_those_that_x402_would_make(campus: TestCampus) -> None:
    class Offline:
        def get_supported(self) -> SupportedResponse:
            return SupportedResponse(kinds=[SupportedKind(x402_version=2, scheme="exact", network="eip155:8453")])

    server = x402ResourceServer(Offline())  # type: ignore[arg-type]  # nothing else of a facilitator is asked for here
    server.register("eip155:8453", ExactEvmServerScheme())
    server.initialize()
    wanted = server.build_payment_requirements(ResourceConfig(scheme="exact", pay_to=PAY_TO, price="$0.02", network="eip155:8453"))
    for frame in FRAMES:
        found = PaymentRequired.model_validate(await terms_of(replace(campus, frame=frame), "text_of", **DAY, words=4))
        assert found.accepts == wanted
        assert found.resource is not None
        assert found.resource.url == "http://campus.test/v1/stall/text/2026-01-02?words=4"
        assert found.resource.description == "The sentence of a day."


async def test_over_http_the_header_is_v2_and_the_body_is_a_problem_and_v1_at_once(campus: TestCampus) -> None:
    answer = await campus.http.get("/v1/stall/text/2026-01-02")
    body = answer.json()
    v2 = decode_payment_required_header(answer.headers["payment-required"])
    v1 = PaymentRequiredV1.model_validate(body)
    assert answer.headers["content-type"] == "application/problem+json"
    assert (body["status"], body["code"], body["type"]) == (402, "access_required", "/errors/access_required")
    assert (v1.accepts[0].network, v1.accepts[0].max_amount_required, v1.accepts[0].pay_to) == ("base", "20000", PAY_TO)
    assert isinstance(v2, PaymentRequired)
    assert v1.accepts[0].resource == (v2.resource and v2.resource.url)
    assert body["unlock"][-1]["per_call"] == "0.02"
    assert "$0.02" in body["detail"]
    assert len(answer.headers["payment-required"]) < 4_096


async def test_over_mcp_the_terms_are_the_result_and_the_text_is_one_sentence(campus: TestCampus) -> None:
    async with Client(over(campus)) as client:
        result = await client.call_tool("text_of", DAY, raise_on_error=False)
    assert result.is_error
    assert result.structured_content is not None
    assert result.content[0].text == result.structured_content["detail"]  # type: ignore[union-attr]  # the one block is a text
    assert (result.structured_content["x402Version"], result.structured_content["code"]) == (2, "access_required")
    signed = (result.meta or {})[TERMS_META]
    assert len(json.dumps(signed)) < 600, "what Cloudflare's client signs; all else is said once"
    assert (signed["accepts"], signed["resource"]["url"]) == (
        result.structured_content["accepts"],
        result.structured_content["resource"]["url"],
    )


@pytest.mark.parametrize("tables", [PAYMENTS, {}], ids=["payments", "no payments"])
async def test_a_402_of_a_tool_for_keys_alone_is_a_document_of_both_versions_of_x402_and_a_stock_client_hands_its_sentence_on(
    tables: dict[str, Any],
) -> None:
    vault = FastMCP[Any]("Vault")
    vault.tool(lambda name: f"{name}: gold", name="read", annotations=READ_ONLY, meta=route("GET /v1/vault/{name}") | access())
    told: list[str | None] = []

    async def read(context: PaymentRequiredContext) -> PaymentRequiredHeadersResult | None:
        told.append(context.payment_required.error)
        return None if len(told) == 1 else PaymentRequiredHeadersResult(headers={"Authorization": f"Bearer {key}"})

    async with open_campus(vault=vault, tables=tables) as campus:
        for sent in ({}, {"Authorization": "Bearer campus_live_unknown"}):
            answer = await campus.http.get("/v1/vault/north", headers=sent)
            v2 = decode_payment_required_header(answer.headers["payment-required"])
            assert (answer.status_code, answer.headers["www-authenticate"].startswith('Bearer realm="campus"')) == (402, True)
            assert (v2.accepts, v2.error) == ([], answer.json()["detail"])
            if tables:
                v1 = PaymentRequiredV1.model_validate(answer.json())
                assert (v1.accepts, v1.error) == ([], v2.error)
            assert "Send a key of scope vault or all in the header 'Authorization: Bearer KEY'" in answer.json()["detail"]
            assert isinstance(v2, PaymentRequired)
            assert v2.resource is not None
            assert v2.resource.url == "http://campus.test/v1/vault/:name"
        key = await campus.key("vault")
        transport = x402AsyncTransport(x402HTTPClient(x402Client()).on_payment_required(read), httpx.ASGITransport(campus.app))
        async with patient.AsyncClient(transport=transport, base_url="http://campus.test") as client:
            with pytest.raises(PaymentError, match="No payment requirements match"):  # its own sentence; the hook was told campus's
                await client.get("/v1/vault/north")
            assert (await client.get("/v1/vault/north")).json() == {"result": "north: gold"}
        assert ["Keys that unlock it: vault" in (error or "") for error in told] == [True, True]
        over_mcp = await replace(campus, frame="mcp").call("read", name="north")
        assert (over_mcp.status, "accepts" in over_mcp.data) == (402, False), "there a host shows the sentence as it is"


async def test_terms_come_before_arguments_are_looked_at(campus: TestCampus, frame: Frame) -> None:
    for tool, arguments in (("text_of", {"day": "soon", "surplus": "1"}), ("write_text", {}), ("write_text", {"text": 5}), ("buy", {})):
        assert (await terms_of(campus, tool, **arguments))["accepts"]


async def test_a_body_that_cannot_be_read_still_gets_the_terms(campus: TestCampus) -> None:
    for body in (b"{", b"[]", b'{"text": "\\ud800"}', b"x" * 2_000_000):
        answer = await campus.http.post("/v1/stall/text", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (402, 413), answer.text
        if answer.status_code == 402:
            assert answer.json()["accepts"][0]["resource"] == "http://campus.test/v1/stall/text"


async def test_a_tool_that_sells_costs_what_the_product_costs(frame: Frame) -> None:
    products = {"pass": {"scope": "all", "price": "29", "term": "30 days"}, "cheap": {"scope": "all", "price": "1.5", "term": "30 days"}}
    products["twin"] = products["cheap"]
    async with open_seller(frame, products=products) as campus:
        assert [one["amount"] for one in (await terms_of(campus, "buy", product="pass"))["accepts"]] == ["29000000"]
        for arguments in ({}, {"product": "none"}, {"product": ["pass"]}, {"product": {"a": 1}}):
            assert [one["amount"] for one in (await terms_of(campus, "buy", **arguments))["accepts"]] == ["1500000", "29000000"]
        secret = await terms_of(campus, "buy", product="pass", idempotency_key="hush")
        assert "hush" not in json.dumps(secret)
        assert secret["resource"]["url"].endswith("/v1/stall/buy?product=pass")


async def test_every_402_fits_the_schema_that_its_tool_lists_for_clients_that_compare_them(campus: TestCampus) -> None:
    async with Client(over(campus), mode="legacy") as client:
        schemas = {tool.name: tool.output_schema for tool in await client.list_tools()}
    for tool, arguments in (("text_of", DAY), ("write_text", {"text": "x"}), ("buy", {})):
        reply = await replace(campus, frame="mcp").call(tool, **arguments)
        assert schemas[tool] is not None
        jsonschema.validate(reply.data, schemas[tool])


async def test_a_key_of_another_scope_is_named_and_a_payment_sent_with_it_is_accepted(frame: Frame) -> None:
    products = {
        "stall": {"scope": "stall", "price": "19", "term": "30 days"},
        "other": {"scope": "other", "price": "1", "term": "30 days"},
    }
    async with open_seller(frame, products=products) as campus:
        reply = await campus.call("text_of", key="other", **DAY)
        assert (reply.status, reply.code) == (403, "insufficient_scope")
        if frame == "http":
            terms = json.loads(b64decode((await campus.http.get("/v1/stall/text/2026-01-02")).headers["payment-required"]))
            headers = {
                "Authorization": f"Bearer {await campus.key('other')}",
                "PAYMENT-SIGNATURE": header(payment_v2(terms, validBefore="1")),
            }
            answer = await campus.http.get("/v1/stall/text/2026-01-02", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (402, "payment_refused")


async def test_a_good_key_is_used_first_and_a_payment_sent_with_it_is_ignored(campus: TestCampus) -> None:
    for sent in ("garbage", header({"x402Version": 2})):
        headers = {"Authorization": f"Bearer {await campus.key('stall')}", "PAYMENT-SIGNATURE": sent}
        answer = await campus.http.get("/v1/stall/text/2026-01-02", headers=headers)
        assert (answer.status_code, answer.json()["text"]) == (200, SENTINEL)
        assert (await campus.http.get("/v1/stall/sample", headers={"PAYMENT-SIGNATURE": sent})).status_code == 200


async def test_every_402_that_was_shown_is_counted(campus: TestCampus, frame: Frame) -> None:
    ledger = campus.service.feature("payments").ledger
    await ledger.flush()
    for _ in range(3):
        await campus.call("text_of", **DAY)
    assert ledger._counts.waiting["offered", "stall", "text_of", frame, *[None] * 6] == 3


async def test_without_payments_no_answer_offers_one(frame: Frame) -> None:
    async with open_campus(frame=frame, stall=make_seller(sells_keys=False)) as campus:
        reply = await campus.call("text_of", **DAY)
        assert (reply.status, reply.code) == (402, "access_required")
        assert not {"accepts", "x402Version", "error"} & reply.data.keys()
        if frame == "http":  # which x402's clients read, and find nothing to sign in
            assert json.loads(b64decode(reply.headers["payment-required"]))["accepts"] == []
        assert (await campus.http.get("/.well-known/x402")).json()["resources"] == []


async def test_rendered_terms_are_kept_by_frame_method_and_reason() -> None:
    shop: FastMCP[Any] = FastMCP("Shop")

    @shop.tool(meta=route("GET|POST /v1/shop/day") | access(price="0.02"))
    async def day() -> str:
        """The day."""
        return SENTINEL

    async with open_campus(tables=PAYMENTS, shop=Building(shop)) as campus, Client(over(campus, "shop")) as client:

        async def asked(method: str, key: str | None = None) -> tuple[str, str]:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            answer = await campus.http.request(method, "/v1/shop/day", headers=headers)
            terms = json.loads(b64decode(answer.headers["payment-required"]))
            assert terms["error"] == answer.json()["error"] == answer.json()["code"]
            return terms["error"], terms["extensions"]["bazaar"]["info"]["input"]["method"]

        for _ in range(2):
            assert await asked("GET") == ("access_required", "GET")
            assert await asked("POST") == ("access_required", "POST")
            assert await asked("GET", "campus_live_unheard_of") == ("key_unknown", "GET")
            said = (await client.call_tool("day", raise_on_error=False)).structured_content or {}
            assert (said["x402Version"], said["extensions"]["bazaar"]["info"]["input"]["type"]) == (2, "mcp")


async def test_a_call_by_key_takes_no_extra_step_where_payments_are_accepted(its_campus: TestCampus) -> None:
    campus = its_campus
    async with open_campus(stall=make_seller(sells_keys=False)) as without:
        looked_at = [len(each.service.plan.opened[0].operations) for each in (campus, without)]  # whether the server has changed
        assert await steps(campus) - looked_at[0] == await steps(without) - looked_at[1]


async def steps(campus: TestCampus) -> int:
    headers = [(b"host", b"campus.test"), (b"authorization", f"Bearer {await campus.key('stall')}".encode())]
    path = "/v1/stall/text/2026-01-02"
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        assert message.get("status", 200) == 200

    async def counted() -> int:
        profile = cProfile.Profile()
        profile.enable()
        await campus.app(dict(scope), receive, send)
        profile.disable()
        return pstats.Stats(profile).total_calls  # type: ignore[attr-defined, no-any-return]  # typeshed leaves it out

    return min([await counted() for _ in range(10)])
