"""Payments, receipts and the secrets that find an answer again, on the wire: in headers over HTTP (x402 v1 and v2), in `_meta` over MCP."""

import binascii
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import to_json
from starlette.types import Scope

from campus.features.payments.networks import id_of_legacy
from campus.features.payments.payment import Payment
from campus.idempotency_keys import SHORTEST_KEY, check_idempotency_key
from twins import Problem, read_json, unstorable_reason

PAYMENT_HEADERS = {b"payment-signature": 2, b"x-payment": 1}
PAYMENT_META = "x402/payment"
RECEIPT_META = "x402/payment-response"
TERMS_META = "x402/error"
"""Where Cloudflare's client reads the terms of an unpaid call over MCP."""
PAYMENT_IDENTIFIER = "payment-identifier"
"""x402's extension: the payer sends an id with the payment, and the seller answers a payment with the same id once."""
IDENTIFIER = re.compile(r"[0-9A-Za-z_-]{16,128}")
LONGEST_IDENTIFIER = 128
LARGEST_PAYMENT = 16 * 1024
LARGEST_NUMBER = 2**63 - 1
"""What a database can hold; far above any amount or time."""


class PaymentPart(BaseModel):
    """Base of the models of a payment. Unknown members are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


def _in_digits(value: Any) -> Any:
    return str(value) if type(value) is int else value


Address = Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{40}$")]
Number = Annotated[str, BeforeValidator(_in_digits), Field(pattern=r"^[0-9]{1,19}$")]


class Authorization(PaymentPart):
    """EIP-3009's `TransferWithAuthorization`."""

    payer: Address = Field(alias="from")
    to: Address
    value: Number
    valid_after: Number = Field(alias="validAfter")
    valid_before: Number = Field(alias="validBefore")
    nonce: str = Field(pattern=r"^0x[0-9a-fA-F]{64}$")


class Signed(PaymentPart):
    """What the payer signed, and the signature: 65 bytes for an account, more for a contract wallet."""

    signature: str = Field(pattern=r"^0x([0-9a-fA-F]{2})+$")
    authorization: Authorization


class Accepted(PaymentPart):
    """The terms that a payment says it accepts. Only these two members are read here; the facilitator compares all of them."""

    scheme: Literal["exact"]
    network: str = Field(max_length=64)


class Resource(PaymentPart):
    url: str


class PaymentV1(PaymentPart):
    version: Literal[1] = Field(alias="x402Version")
    scheme: Literal["exact"]
    network: str = Field(max_length=64)
    payload: Signed


class PaymentV2(PaymentPart):
    version: Literal[2] = Field(alias="x402Version")
    accepted: Accepted
    resource: Resource | None = None
    payload: Signed


def payment_identifier(*, required: bool) -> dict[str, Any]:
    """The extension as terms declare it. It takes what is a strong Idempotency-Key, so its shortest id is longer than x402's."""
    text = {"type": "string", "minLength": SHORTEST_KEY, "maxLength": LONGEST_IDENTIFIER, "pattern": "^[a-zA-Z0-9_-]+$"}
    schema = {"type": "object", "properties": {"required": {"type": "boolean"}, "id": text}, "required": ["required"]}
    return {PAYMENT_IDENTIFIER: {"info": {"required": required}, "schema": schema}}


def payment_in_headers(scope: Scope) -> Payment | None:
    """The payment in a request's headers; None if there is none, and for HEAD. Problem 400 `invalid_payment` if it cannot be read."""
    found = [(PAYMENT_HEADERS[name], value) for name, value in scope["headers"] if name in PAYMENT_HEADERS]
    if not found or scope["method"] == "HEAD":
        return None
    newest = max(version for version, _ in found)
    values = {value for version, value in found if version == newest}
    if len(values) > 1:
        raise invalid("the header is sent twice, with two payments")
    data = _read(values.pop())
    if data.get("x402Version") != newest:
        raise invalid(f"x402Version must be {newest} there; v1 payments go into X-PAYMENT, v2 payments into PAYMENT-SIGNATURE")
    return _payment(data)


def payment_in_meta(meta: Mapping[str, Any] | None) -> Payment | None:
    """The payment in a request's `_meta`: an object, its JSON, or that in base64. None if there is none; Problem 400 `invalid_payment`."""
    sent = (meta or {}).get(PAYMENT_META)
    if sent is None:
        return None
    if isinstance(sent, str):
        text = sent.strip().encode(errors="replace")
        sent = _json_object(text) if text.startswith((b"{", b"[", b'"')) else _read(text)
    if not isinstance(sent, dict):
        raise invalid("it is not a JSON object")
    if (reason := unstorable_reason(sent)) is not None:
        raise invalid(reason)
    if len(to_json(sent)) > LARGEST_PAYMENT:
        raise invalid(f"it is larger than {LARGEST_PAYMENT} bytes")
    return _payment(sent)


def purchase_key(payment: Payment, idempotency_key: str | None) -> str | None:
    """The secret that finds the answer to a payment again: the Idempotency-Key, or the payment's identifier if none was sent.

    Problem 400 `weak_idempotency_key` for an identifier that others could guess.
    """
    if idempotency_key or payment.identifier is None:
        return idempotency_key
    check_idempotency_key(payment.identifier, name=f"id of the extension {PAYMENT_IDENTIFIER}")
    return payment.identifier


def receipt_headers(receipt: Mapping[str, Any]) -> dict[str, str]:
    """x402's receipt in the headers that clients of both versions read."""
    text = encoded(receipt)
    return {"PAYMENT-RESPONSE": text, "X-PAYMENT-RESPONSE": text}


def encoded(data: Mapping[str, Any]) -> str:
    return b64encode(orjson.dumps(data)).decode()


def invalid(reason: str) -> Problem:
    return Problem(400, "invalid_payment", f"The payment cannot be accepted: {reason}. Nothing is charged.")


def _read(value: bytes) -> dict[str, Any]:
    if len(value) > LARGEST_PAYMENT:
        raise invalid(f"it is larger than {LARGEST_PAYMENT} bytes")
    try:
        return _json_object(b64decode(value, validate=True))
    except binascii.Error:
        raise invalid("it is not base64, or was cut off") from None


def _json_object(text: bytes) -> dict[str, Any]:
    if len(text) > LARGEST_PAYMENT:
        raise invalid(f"it is larger than {LARGEST_PAYMENT} bytes")
    try:
        data = read_json(text)
    except Problem as problem:
        raise invalid(problem.detail) from None
    if not isinstance(data, dict):
        raise invalid("it is not a JSON object")
    return data


def _payment(data: dict[str, Any]) -> Payment:
    model = PaymentV1 if data.get("x402Version") == 1 else PaymentV2
    try:
        read = model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise invalid(f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
    by_v2 = isinstance(read, PaymentV2)
    identifier = _identifier(data) if by_v2 else None
    network = read.accepted.network if isinstance(read, PaymentV2) else id_of_legacy(read.network)
    signed = read.payload.model_dump(by_alias=True)
    times = [int(signed["authorization"][name]) for name in ("value", "validAfter", "validBefore")]
    if max(times) > LARGEST_NUMBER:
        raise invalid("payload.authorization: a number does not fit into 64 bits")
    canonical = json.dumps([network, signed], sort_keys=True).lower()
    return Payment(
        version=read.version,
        network=network,
        payer=read.payload.authorization.payer.lower(),
        pay_to=read.payload.authorization.to.lower(),
        value=times[0],
        valid_after=times[1],
        valid_before=times[2],
        nonce=read.payload.authorization.nonce.lower(),
        digest=sha256(canonical.encode()).digest(),
        payload=signed,
        resource=read.resource.url if isinstance(read, PaymentV2) and read.resource else None,
        accepted=data["accepted"] if by_v2 else None,
        identifier=identifier,
    )


def _identifier(data: Any) -> str | None:
    """The payment's identifier. A client that sends the extension back as it was declared sends none."""
    for name in ("extensions", PAYMENT_IDENTIFIER, "info", "id"):
        data = data.get(name) if isinstance(data, dict) else None
    if data is not None and not (isinstance(data, str) and IDENTIFIER.fullmatch(data)):
        raise invalid(
            f"extensions.{PAYMENT_IDENTIFIER}.info.id: it must be 16 to {LONGEST_IDENTIFIER} letters, digits, hyphens or underscores"
        )
    return data
