"""However its arguments are spelled, a call is the same call: for its payment and for its Idempotency-Key."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastmcp.server.middleware import Middleware
from features.payments.terms.paid_campus import PATH, PaidCampus, open_paid_campus
from features.payments.terms.samples import PAYMENTS, make_seller

from buildings.cve.building import building as cve
from campus.features.chain import PAYMENT, headers_of, terms_of
from campus.testing import Frame, open_campus

pytestmark = pytest.mark.anyio
KEY = {"Idempotency-Key": "fV3k9Zq0tLx7Rw2uBn5sYd8A"}
DAY = "2026-01-02"
SPELLINGS: tuple[dict[str, Any], ...] = (
    {},
    {"words": 3},
    {"words": "3"},
    {"words": 3.0, "language": "en"},
)
WRITTEN: tuple[dict[str, Any], ...] = ({"text": "x"}, {"text": "x", "marks": None})


class Silent(Middleware):
    """An author's own, which changes nothing: whether it does only the server knows."""


async def test_an_argument_left_out_and_its_default_are_the_same_call_on_both_frames(paid_campus: PaidCampus) -> None:
    async with paid_campus.mcp() as client:
        urls = {terms_of(await paid_campus.campus.http.get(PATH, params=lang_of(one)))["resource"]["url"] for one in SPELLINGS}
        for one in SPELLINGS:
            said = (await client.call_tool("text_of", {"day": DAY, **one}, raise_on_error=False)).structured_content
            urls.add(said["resource"]["url"])
        assert urls == {f"http://campus.test{PATH}"}
        for body in WRITTEN:
            unpaid = await paid_campus.campus.http.post("/v1/stall/text", json=body)
            assert terms_of(unpaid)["resource"]["url"] == "http://campus.test/v1/stall/text"
            said = (await client.call_tool("write_text", body, raise_on_error=False)).structured_content
            assert said["resource"]["url"] == "http://campus.test/v1/stall/text?text=x"
        other = terms_of(await paid_campus.campus.http.get(PATH, params={"words": "4"}))["resource"]["url"]
        assert other.endswith("?words=4")
        wrong = await paid_campus.campus.http.get(PATH, params={"words": "many"})
        assert (wrong.status_code, terms_of(wrong)["resource"]["url"].endswith("?words=many")) == (402, True)


async def test_the_body_of_an_unpaid_call_is_not_read_and_a_payment_by_its_terms_buys_the_call_it_comes_with(
    paid_campus: PaidCampus,
) -> None:
    read: list[bytes] = []

    async def body() -> AsyncIterator[bytes]:
        read.append(b"")
        yield b'{"text": "x"}'

    headers = {"Content-Type": "application/json"}
    http = paid_campus.campus.http
    unpaid = await http.post("/v1/stall/text", content=body(), headers=headers)
    assert (unpaid.status_code, read) == (402, [])
    payment = paid_campus.payer.payload(terms_of(unpaid))
    bought = await http.post("/v1/stall/text", content=body(), headers=headers | headers_of(payment))
    assert (bought.status_code, read) == (200, [b""]), bought.text
    other = await http.post("/v1/stall/text", json={"text": "y"}, headers=headers_of(payment))
    assert other.status_code == 409


async def test_a_payment_for_one_spelling_buys_the_others_and_their_idempotency_key_finds_one_answer(paid_campus: PaidCampus) -> None:
    async with paid_campus.mcp() as client:
        payment = paid_campus.payer.payload(await paid_campus.terms())
        first = await paid_campus.campus.http.get(PATH, params={"words": "3"}, headers=headers_of(payment) | KEY)
        assert first.status_code == 200, first.json()
        for one in SPELLINGS:
            again = await paid_campus.campus.http.get(PATH, params=lang_of(one), headers=KEY)
            assert (again.status_code, again.json()) == (200, first.json()), one
            meta = {PAYMENT: payment, "idempotency-key": KEY["Idempotency-Key"]}
            result = await client.call_tool("text_of", {"day": DAY, **one}, meta=meta, raise_on_error=False)
            assert result.structured_content == first.json(), one
        other = await paid_campus.campus.http.get(PATH, params={"words": "4"}, headers=KEY)
        assert other.json()["code"] == "idempotency_key_reused"
        assert await paid_campus.earned() == 20_000


async def test_a_null_that_is_the_default_renews_nothing_and_buys_once(paid_campus: PaidCampus) -> None:
    async with paid_campus.mcp() as client:
        body = WRITTEN[0]
        payment = paid_campus.payer.payload(terms_of(await paid_campus.campus.http.post("/v1/stall/text", json=body)))
        bought = await paid_campus.campus.http.post("/v1/stall/text", json=WRITTEN[1], headers=headers_of(payment) | KEY)
        assert bought.status_code == 200, bought.json()
        over_mcp = await client.call_tool("write_text", body, meta={"idempotency-key": KEY["Idempotency-Key"]}, raise_on_error=False)
        assert over_mcp.structured_content == bought.json()
        assert await paid_campus.earned() == 5_000


async def test_where_the_authors_middleware_may_change_arguments_nulls_alone_are_left_out() -> None:
    seller = make_seller()
    seller.server.add_middleware(Silent())  # type: ignore[union-attr]  # a server, not a factory
    async with open_paid_campus(seller) as paid_campus, paid_campus.mcp() as client:
        for body in WRITTEN:
            unpaid = await paid_campus.campus.http.post("/v1/stall/text", json=body)
            assert terms_of(unpaid)["resource"]["url"] == "http://campus.test/v1/stall/text"
            said = (await client.call_tool("write_text", body, raise_on_error=False)).structured_content or {}
            assert said["resource"]["url"] == "http://campus.test/v1/stall/text?text=x"


@pytest.mark.parametrize("frame", ["http", "mcp"])
async def test_spellings_that_validation_makes_equal_are_the_same_call(frame: Frame) -> None:
    async with open_campus(frame=frame, tables=PAYMENTS, cve=cve) as campus:
        said = [(await campus.call("cve_verdict", cve_id=one)).data for one in ("CVE-2021-44228", "cve-2021-44228")]
    urls = {one["accepts"][0]["resource"] if frame == "http" else one["resource"]["url"] for one in said}
    assert urls == {"http://campus.test/v1/cve/CVE-2021-44228"}


def lang_of(arguments: dict[str, Any]) -> dict[str, Any]:
    return {("lang" if name == "language" else name): value for name, value in arguments.items()}
