"""Reading payments from the wire: a valid payment is read completely, anything else is a 400 and never a server error."""

import json
from base64 import b64decode, b64encode
from typing import Any

import pytest
from features.payments.terms.samples import GARBAGE, PAY_TO, PAYER, TERMS, V1, V2, changed, header, payload
from hypothesis import given
from hypothesis import strategies as st
from x402.http.utils import decode_payment_response_header
from x402.schemas import PaymentPayload, PaymentPayloadV1

from campus.features.payments.wire import LARGEST_PAYMENT, payment_in_headers, payment_in_meta, receipt_headers
from campus.idempotency_keys import idempotency_key_in
from twins import Problem


def request(*headers: tuple[str, str | bytes], method: str = "GET") -> dict[str, Any]:
    raw = [(name.lower().encode(), value if isinstance(value, bytes) else value.encode()) for name, value in headers]
    return {"type": "http", "method": method, "headers": raw}


def test_a_v2_payment_is_read_whole() -> None:
    payment = payment_in_headers(request(("PAYMENT-SIGNATURE", header(V2))))
    assert payment is not None
    assert (payment.version, payment.network, payment.payer, payment.pay_to) == (2, "eip155:8453", PAYER, PAY_TO.lower())
    assert (payment.value, payment.valid_after, payment.valid_before, payment.nonce) == (20_000, 0, 4_000_000_000, "0x" + "5a" * 32)
    assert (payment.resource, payment.accepted) == ("https://campus.example/v1/x", TERMS["accepts"][0])
    assert payment.payload == payload()
    PaymentPayload.model_validate({"x402Version": 2, "accepted": payment.accepted, "payload": payment.payload})


def test_a_v1_payment_is_read_under_its_networks_older_name() -> None:
    PaymentPayloadV1.model_validate(V1)
    payment = payment_in_headers(request(("X-PAYMENT", header(V1))))
    assert payment is not None
    assert (payment.version, payment.network, payment.resource, payment.accepted) == (1, "eip155:8453", None, None)


def test_the_same_signature_is_the_same_payment_in_either_version_frame_and_spelling() -> None:
    ways = [
        payment_in_headers(request(("PAYMENT-SIGNATURE", header(V2)))),
        payment_in_headers(request(("X-PAYMENT", header(V1)))),
        payment_in_meta({"x402/payment": V2}),
        payment_in_meta({"x402/payment": json.dumps(V2)}),
        payment_in_meta({"x402/payment": changed(V2, "payload.authorization.validAfter", 0)}),
        payment_in_meta({"x402/payment": changed(V2, "payload.authorization.nonce", "0x" + "5A" * 32)}),
        payment_in_meta({"x402/payment": changed(V2, "extensions", {"bazaar": {}}) if "extensions" in V2 else V2 | {"extensions": {}}}),
    ]
    assert len({payment.digest for payment in ways if payment}) == 1
    other = payment_in_meta({"x402/payment": changed(V2, "payload.signature", "0x" + "78" * 65)})
    assert other is not None
    assert ways[0] is not None
    assert other.digest != ways[0].digest


def test_without_a_payment_there_is_none_and_head_never_has_one() -> None:
    assert payment_in_headers(request(("Authorization", "Bearer x"))) is None
    assert payment_in_headers(request(("PAYMENT-SIGNATURE", header(V2)), method="HEAD")) is None
    assert payment_in_headers(request(("PAYMENT-SIGNATURE", "garbage"), method="HEAD")) is None
    assert payment_in_meta(None) is None
    assert payment_in_meta({"other": 1}) is None


@pytest.mark.parametrize("case", GARBAGE, ids=str)
def test_garbage_in_the_header_is_refused_as_such(case: str) -> None:
    with pytest.raises(Problem) as caught:
        payment_in_headers(request(("PAYMENT-SIGNATURE", GARBAGE[case])))
    assert (caught.value.status, caught.value.code) == (400, "invalid_payment")
    assert "Nothing is charged" in caught.value.detail


def test_v2_in_the_header_of_v1_and_two_payments_at_once_are_refused() -> None:
    other = changed(V2, "payload.signature", "0x" + "78" * 65)
    for headers in ([("X-PAYMENT", header(V2))], [("PAYMENT-SIGNATURE", header(V2)), ("PAYMENT-SIGNATURE", header(other))]):
        with pytest.raises(Problem, match="payment cannot be accepted"):
            payment_in_headers(request(*headers))
    same = payment_in_headers(request(("PAYMENT-SIGNATURE", header(V2)), ("PAYMENT-SIGNATURE", header(V2)), ("X-PAYMENT", "garbage")))
    assert same is not None
    assert same.version == 2


BAD_MEMBERS: tuple[tuple[str, Any], ...] = (
    ("payload", ...),
    ("payload", []),
    ("payload", {"permit2Authorization": {}, "signature": "0x00"}),
    ("payload.signature", ...),
    ("payload.signature", ""),
    ("payload.signature", "0x"),
    ("payload.signature", "0x123"),
    ("payload.signature", "77" * 65),
    ("payload.signature", 7),
    ("payload.authorization", ...),
    ("payload.authorization", "x"),
    ("payload.authorization.from", PAYER[:-1]),
    ("payload.authorization.from", PAYER + "\n"),
    ("payload.authorization.from", "0x" + "ｆ" * 40),
    ("payload.authorization.from", None),
    ("payload.authorization.to", "0x" + "zz" * 20),
    ("payload.authorization.to", ["0x" + "ab" * 20]),
    ("payload.authorization.value", "-1"),
    ("payload.authorization.value", "2e4"),
    ("payload.authorization.value", "٣"),
    ("payload.authorization.value", ""),
    ("payload.authorization.value", 2.5),
    ("payload.authorization.value", True),
    ("payload.authorization.value", str(2**63)),
    ("payload.authorization.value", str(2**256)),
    ("payload.authorization.validAfter", "soon"),
    ("payload.authorization.validAfter", -1),
    ("payload.authorization.validBefore", "9" * 5_000),
    ("payload.authorization.validBefore", {}),
    ("payload.authorization.nonce", "0x" + "5a" * 31),
    ("payload.authorization.nonce", 5),
    ("accepted", ...),
    ("accepted", "exact"),
    ("accepted", []),
    ("accepted.scheme", "upto"),
    ("accepted.scheme", ...),
    ("accepted.network", ["eip155:8453"]),
    ("accepted.network", "x" * 65),
    ("resource", "https://campus.example/v1/x"),
    ("resource", {"url": 7}),
    ("resource.url", ...),
)


@pytest.mark.parametrize(("path", "value"), BAD_MEMBERS, ids=lambda value: str(value)[:40])
def test_a_bad_member_is_named_and_its_value_is_not_repeated(path: str, value: Any) -> None:
    data = changed(V2, path, value)
    for read in (lambda: payment_in_headers(request(("PAYMENT-SIGNATURE", header(data)))), lambda: payment_in_meta({"x402/payment": data})):
        with pytest.raises(Problem) as caught:
            read()
        assert (caught.value.status, caught.value.code) == (400, "invalid_payment")
        assert len(caught.value.detail) < 400


@pytest.mark.parametrize(
    "value", [[], 7, "", "x", "{}", "[" * 9_000, {"a": float("nan")}, {"a": "\ud800"}, {"a": "x" * LARGEST_PAYMENT}, True]
)
def test_garbage_in_the_meta_is_refused_as_such(value: Any) -> None:
    with pytest.raises(Problem) as caught:
        payment_in_meta({"x402/payment": value})
    assert (caught.value.status, caught.value.code) == (400, "invalid_payment")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PATHS = st.sampled_from([path for path, _ in BAD_MEMBERS])


@given(PATHS, JSON)
def test_any_value_of_a_member_is_a_payment_or_a_400(path: str, value: Any) -> None:
    problems: list[Problem] = []
    try:
        payment_in_meta({"x402/payment": changed(V2, path, value)})
    except Problem as problem:
        problems.append(problem)
    assert [(one.status, one.code) for one in problems] in ([], [(400, "invalid_payment")])


@given(st.binary(max_size=200))
def test_any_value_of_the_header_is_a_payment_or_a_400(value: bytes) -> None:
    for sent in (value, b64encode(value)):
        with pytest.raises(Problem) as caught:
            payment_in_headers(request(("X-PAYMENT", sent)))
        assert caught.value.status == 400


def test_a_receipt_is_one_that_x402_reads_in_both_headers() -> None:
    receipt = {"success": True, "transaction": "0x" + "9f" * 32, "network": "eip155:8453", "payer": PAYER}
    headers = receipt_headers(receipt)
    assert decode_payment_response_header(headers["PAYMENT-RESPONSE"]).transaction == receipt["transaction"]
    assert json.loads(b64decode(headers["X-PAYMENT-RESPONSE"])) == receipt


def test_an_idempotency_key_may_be_in_the_header_the_meta_or_the_arguments() -> None:
    assert idempotency_key_in(request(("Idempotency-Key", "a")), {"idempotency-key": "b"}, {"idempotency_key": "c"}) == "a"
    assert idempotency_key_in(request(), {"idempotency-key": "b"}, {"idempotency_key": "c"}) == "b"
    assert idempotency_key_in(request(), {"other": 1}, {"idempotency_key": "c"}) == "c"
    assert idempotency_key_in(request(), None, {"idempotency_key": 5}) is None
