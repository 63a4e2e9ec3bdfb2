"""x402's extension payment-identifier: a client that knows nothing else finds a lost answer again, and may buy a secret by it."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from eth_account import Account
from features.payments.terms.paid_campus import DAY, DOLLAR, PATH, PaidCampus
from features.payments.terms.test_shared_keys import BUY, FRAMES, WEAK, second_payer
from x402 import x402Client
from x402.extensions.payment_identifier import (
    append_payment_identifier_to_extensions,
    generate_payment_id,
    is_payment_identifier_required,
    validate_payment_identifier,
)
from x402.http.clients.httpx import x402_httpx_transport
from x402.mechanisms.evm.exact import register_exact_evm_client

from campus.features.chain import PAYMENT, Payer, headers_of, terms_of
from campus.testing import ORIGIN
from tests import patient

pytestmark = pytest.mark.anyio
DOCUMENT = Path(__file__).parents[4] / "docs" / "x402-clients.md"
MALFORMED = ("a1B2c3D4e5F6g7!", "fV3k9Zq0tLx7Rw2uBn5s d8A", "x" * 129, 7, True, {"id": "x"}, ["fV3k9Zq0tLx7Rw2uBn5sYd8A"])


def identified(payer: Payer, terms: dict[str, Any], identifier: Any) -> dict[str, Any]:
    payment = payer.payload(terms)
    extensions = payment["extensions"] = {**terms["extensions"]}
    try:
        append_payment_identifier_to_extensions(extensions, identifier)
    except (ValueError, TypeError):
        declared = extensions["payment-identifier"]
        extensions["payment-identifier"] = {**declared, "info": {**declared["info"], "id": identifier}}
    return payment


async def offer(paid_campus: PaidCampus, frame: str, payment: Any, **body: Any) -> tuple[int, dict[str, Any]]:
    if frame == "http" and body:
        answer = await paid_campus.campus.http.post(BUY, json=body, headers=headers_of(payment))
        return answer.status_code, answer.json()
    if frame == "http":
        return await paid_campus.offer(frame, payment)
    async with paid_campus.mcp() as client:
        tool, arguments = ("buy", body) if body else ("text_of", DAY)
        result = await client.call_tool(tool, arguments, meta={PAYMENT: payment}, raise_on_error=False)
    said = result.structured_content or {}
    return (said["status"] if result.is_error else 200), said


@pytest.mark.parametrize("frame", FRAMES)
async def test_a_lost_answer_is_found_by_a_new_payment_with_the_same_identifier_of_its_payer_alone(
    paid_campus: PaidCampus, frame: str
) -> None:
    terms, identifier, other = await paid_campus.terms(), generate_payment_id(), await second_payer(paid_campus)
    status, bought = await offer(paid_campus, frame, identified(paid_campus.payer, terms, identifier))
    assert (status, await paid_campus.earned()) == (200, 20_000)
    again = await offer(paid_campus, frame, identified(paid_campus.payer, terms, identifier))
    assert (again, await paid_campus.earned()) == ((200, bought), 20_000), "charged a second time for a lost answer"
    transport = httpx.ASGITransport(paid_campus.campus.app, client=("192.0.2.8", 4000))
    async with patient.AsyncClient(transport=transport, base_url=ORIGIN) as elsewhere:
        found = await elsewhere.get(PATH, headers=headers_of(identified(paid_campus.payer, terms, identifier)))
        assert (found.status_code, found.json(), await paid_campus.earned()) == (200, bought, 20_000)
    status, _ = await offer(paid_campus, frame, identified(other, terms, identifier))
    assert (status, await paid_campus.earned()) == (200, 40_000), "another payer was given what the first had paid for"
    different = headers_of(identified(paid_campus.payer, await paid_campus.terms(f"{PATH}?words=4"), identifier))
    refused = await paid_campus.campus.http.get(PATH, params={"words": "4"}, headers=different)
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    assert await paid_campus.earned() == 40_000
    assert identifier not in str(paid_campus.facilitator.bodies), "the secret was told to the facilitator"


@pytest.mark.parametrize("frame", FRAMES)
async def test_a_secret_is_bought_by_the_identifier_alone_which_its_terms_require(paid_campus: PaidCampus, frame: str) -> None:
    await paid_campus.chain.mint(paid_campus.payer.wallet.address, 100 * DOLLAR)
    payer, wanted = Payer(paid_campus.payer.wallet, max_dollars=50), {"product": "stall"}
    dear = terms_of(await paid_campus.campus.http.post(BUY, json=wanted))
    assert is_payment_identifier_required(dear["extensions"]["payment-identifier"])
    status, said = await offer(paid_campus, frame, payer.payload(dear), **wanted)
    assert (status, said["code"]) == (400, "idempotency_key_required")
    assert "payment-identifier" in said["detail"]
    identifier = generate_payment_id()
    bought = [await offer(paid_campus, frame, identified(payer, dear, identifier), **wanted) for _ in range(2)]
    assert [status for status, _ in bought] == [200, 200]
    assert bought[0] == bought[1]
    assert await paid_campus.earned() == int(dear["accepts"][0]["amount"])


@pytest.mark.parametrize("frame", FRAMES)
async def test_an_identifier_that_others_could_guess_or_that_is_none_buys_nothing(paid_campus: PaidCampus, frame: str) -> None:
    terms = await paid_campus.terms()
    for identifier in (*WEAK, *MALFORMED):
        status, said = await offer(paid_campus, frame, identified(paid_campus.payer, terms, identifier))
        is_weak = isinstance(identifier, str) and 16 <= len(identifier) <= 128 and " " not in identifier
        assert (status, said["code"]) == (400, "weak_idempotency_key" if is_weak else "invalid_payment"), identifier
        assert "payment-identifier" in said["detail"]
    assert (await paid_campus.earned(), paid_campus.facilitator.calls) == (0, [])


async def test_the_declaration_is_x402s_and_the_documented_client_fills_it_in(paid_campus: PaidCampus) -> None:
    terms = await paid_campus.terms()
    declared = terms["extensions"]["payment-identifier"]
    assert validate_payment_identifier(declared).valid
    assert not is_payment_identifier_required(declared)
    filled = append_payment_identifier_to_extensions(dict(terms["extensions"]))["payment-identifier"]
    assert validate_payment_identifier(filled).valid
    payment = paid_campus.payer.payload(terms)
    assert payment["extensions"]["payment-identifier"] == declared
    for _ in range(2):  # the second is found by the payment itself, as ever
        assert (await paid_campus.offer("http", payment))[0] == 200
    assert (await paid_campus.offer("http", paid_campus.payer.payload(terms)))[0] == 200
    assert await paid_campus.earned() == 40_000
    names: dict[str, Any] = {"client": register_exact_evm_client(x402Client(), Account.from_key(paid_campus.payer.wallet.key))}
    documented = re.search(r"## The identifier in Python\n\n```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert documented is not None
    exec(documented[1], names)
    transport = x402_httpx_transport(names["client"], httpx.ASGITransport(paid_campus.campus.app))
    async with patient.AsyncClient(transport=transport, base_url=ORIGIN) as as_documented:
        first, again = [await as_documented.get(PATH) for _ in range(2)]
    assert (first.status_code, first.headers["payment-response"]) == (200, again.headers["payment-response"])
    assert await paid_campus.earned() == 60_000
