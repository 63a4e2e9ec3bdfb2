"""Which results of a paid tool are charged and sent: whole answers always, a question back to the caller never."""

from collections.abc import AsyncIterator
from typing import Any

import mcp_types
import pytest
from fastmcp import FastMCP
from features.payments.terms.paid_campus import PaidCampus, open_paid_campus
from features.payments.terms.samples import SENTINEL, Paid

from campus import Building, access, free, route
from campus.features.chain import PAYMENT, headers_of, terms_of

pytestmark = pytest.mark.anyio
KEPT = "/v1/stall/kept"
ANSWER = Paid(text=SENTINEL)


def make_asking() -> Building:
    mcp: FastMCP[Any] = FastMCP("Seller")

    @mcp.tool(annotations={"readOnlyHint": True}, meta=route(KEPT, cache="public, max-age=60") | access(price="0.01"))
    async def kept() -> Paid:
        """A sentence that stays as it is."""
        return ANSWER

    @mcp.tool(annotations={"readOnlyHint": True}, meta=route("/v1/stall/sample", cache="public, max-age=60") | free())
    async def sample() -> Paid:
        """The same, free."""
        return ANSWER

    @mcp.tool(output_schema=None, meta=access(price="0.01"))
    async def choice(text: str) -> Any:
        """Ask back, or answer."""
        return mcp_types.InputRequiredResult(request_state="x") if text == "which?" else Paid(text=SENTINEL)

    return Building(mcp)


@pytest.fixture(scope="module")
async def its_paid_campus() -> AsyncIterator[PaidCampus]:
    async with open_paid_campus(make_asking()) as paid_campus:
        yield paid_campus


async def test_a_cacheable_paid_answer_is_sent_whole_whatever_the_client_has_cached(paid_campus: PaidCampus) -> None:
    etag = (await paid_campus.campus.http.get("/v1/stall/sample")).headers["etag"]
    again = await paid_campus.campus.http.get("/v1/stall/sample", headers={"If-None-Match": etag})
    assert again.status_code == 304, "the free one is not sent again"
    payment = paid_campus.payer.payload(await paid_campus.terms(KEPT))
    for _ in range(2):
        answer = await paid_campus.campus.http.get(KEPT, headers=headers_of(payment) | {"If-None-Match": etag})
        assert (answer.status_code, answer.json().get("text")) == (200, SENTINEL), "it was paid for, and sent empty"
    assert await paid_campus.earned() == 10_000


async def asks_back(paid_campus: PaidCampus, text: str) -> Any:
    terms = terms_of(await paid_campus.campus.http.post("/v1/stall/choice", json={"text": text}))
    async with paid_campus.mcp() as client:
        return await client.session.call_tool(
            "choice", {"text": text}, meta={PAYMENT: paid_campus.payer.payload(terms)}, allow_input_required=True
        )


async def test_a_question_back_to_the_caller_costs_nothing_on_either_frame(paid_campus: PaidCampus) -> None:
    asked = await asks_back(paid_campus, "which?")
    assert isinstance(asked, mcp_types.InputRequiredResult), asked
    assert await paid_campus.earned() == 0
    assert paid_campus.facilitator.outcomes("settle") == []
    unpaid = await paid_campus.campus.http.post("/v1/stall/choice", json={"text": "which?"})
    headers = paid_campus.payer.pay_headers(terms_of(unpaid))
    over_http = await paid_campus.campus.http.post("/v1/stall/choice", json={"text": "which?"}, headers=headers)
    assert over_http.json()["code"] == "input_required"
    assert await paid_campus.earned() == 0
    answered = await asks_back(paid_campus, "this one")
    assert SENTINEL in str(answered)
    assert await paid_campus.earned() == 10_000
