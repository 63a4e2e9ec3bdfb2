"""No unpaid access where payments are taken: every paid route, with every method, odd spelling and invalid payment."""

import httpx
import pytest
from features.payments.terms.samples import SENTINEL, TERMS, V1, V2, header

from campus.testing import ORIGIN, TestCampus

pytestmark = pytest.mark.anyio
PAID = ("/v1/stall/text/2026-01-02", "/v1/stall/text", "/v1/stall/words", "/v1/stall/said", "/v1/stall/buy")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get")
PAYMENTS: tuple[dict[str, str], ...] = (
    {},
    {"PAYMENT-SIGNATURE": ""},
    {"PAYMENT-SIGNATURE": "garbage"},
    {"PAYMENT-SIGNATURE": header(V2)},
    {"X-PAYMENT": header(V1)},
    {"PAYMENT-SIGNATURE": header(V1), "X-PAYMENT": header(V2)},
    {"PAYMENT-RESPONSE": header({"success": True}), "X-PAYMENT-RESPONSE": header({"success": True})},
    {"PAYMENT-REQUIRED": header(TERMS), "Idempotency-Key": "d0c5b2f9e6a34871b5f2e9c06d1a7384"},
)


def spellings(path: str) -> list[str]:
    odd = [path + "/", "/" + path, path.replace("/", "//"), path.upper(), path + "?", path + ";a=b", path + "%00", path + "%2F"]
    return [path, *odd, path.replace("/", "%2F"), path.replace("/v1/", "/v1/./"), path.replace("t", "%74")]


@pytest.mark.parametrize("path", PAID)
async def test_no_paid_answer_is_given_away_and_nothing_fails(campus: TestCampus, path: str) -> None:
    seen = set()
    for spelling in spellings(path):
        for method in METHODS:
            for sent in PAYMENTS if spelling == path else PAYMENTS[:4]:
                body = {"text": "x", "product": "stall"} if method in ("POST", "PUT", "PATCH") else None
                query = "?many=1&text=x" if body is None and "?" not in spelling else ""
                answer = await campus.http.request(method, httpx.URL(ORIGIN + spelling + query), json=body, headers=sent)
                assert answer.status_code < 500, (method, spelling, sent, answer.text)
                assert SENTINEL not in answer.text, (method, spelling, sent)
                assert not (method in ("GET", "HEAD", "POST") and spelling == path and answer.status_code == 200), (method, sent)
                seen.add(answer.status_code)
    assert {400, 402, 404, 405} <= seen


async def test_the_walk_notices_an_answer_that_is_given_away(campus: TestCampus) -> None:
    answer = await campus.http.get(PAID[0], headers={"Authorization": f"Bearer {await campus.key('stall')}"})
    assert SENTINEL in answer.text


async def test_head_is_refused_like_get_without_a_body_and_takes_no_payment(campus: TestCampus) -> None:
    for sent in PAYMENTS:
        answer = await campus.http.head(PAID[0], headers=sent)
        assert (answer.status_code, answer.content) == (402, b"")
        assert "payment-required" in answer.headers
