"""The paywall over HTTP: the gate that the package twins calls before it runs a tool, and the call that a payment buys."""

import logging
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from campus.errors import StorageUnavailable
from campus.payments.payment import PaidAnswer, Payment, StoredAnswer
from campus.payments.wire import idempotency_key_in, payment_in_headers, purchase_key, receipt_headers
from campus.paywall.admission import Paywall, refuse_failure
from campus.paywall.payment_gate import PaidRequest, PaymentGate
from campus.pricing import Offer
from campus.problems import storage_unavailable
from campus.site import ROUTE, SITE, Site
from twins import QUERY_METHODS, Answer, Call, Gate, Problem, json_answer

log = logging.getLogger(__name__)


def gate(site: Site[Any, Any], offers: Mapping[str, Offer], paywall: Paywall, payment_gate: PaymentGate | None = None) -> Gate:
    """The gate of one building's tools. A caller is admitted before its arguments are read; a caller without a key may pay."""

    async def admitted(call: Call) -> Answer:
        scope = call.scope
        scope[SITE] = site
        scope[ROUTE] = call.operation.path
        try:
            try:
                admission = await paywall.admit(offers[call.operation.name], scope, frame="http")
            except Problem as refusal:
                return await paid(call, offers[call.operation.name], refusal, payment_gate)
            answer = await answered(call, offers[call.operation.name])
        except StorageUnavailable as error:
            log.warning("storage unavailable: %s", error, extra={"building": site.name, "request_id": scope.get("request_id")})
            raise storage_unavailable() from None
        if admission.key_ignored is None:
            return answer
        notice = f'299 campus "{admission.key_ignored}: the key was ignored, since this tool is free"'
        return answer.adding({"Warning": notice, "Vary": "Authorization"})

    return admitted


async def answered(call: Call, offer: Offer) -> Answer:
    """The tool's answer. Raises a Problem for one that reports a failure, which is not charged."""
    answer = await call.answer()
    if offer.access.fails_if is not None and answer.body:
        refuse_failure(offer, from_json(answer.body))
    return answer


async def paid(call: Call, offer: Offer, refusal: Problem, payment_gate: PaymentGate | None) -> Answer:
    """The answer that the call's payment buys. Raises the refusal with its terms if the call brings no payment."""
    if payment_gate is None or not payment_gate.pricing.sells(offer):
        raise refusal
    scope = call.scope
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    payment = payment_in_headers(scope)
    if payment is None:
        # a body is worth reading only if it sets the price, or may ask for what was bought before
        is_read = method in QUERY_METHODS or offer.access.sells or idempotency_key_in(scope)
        sent = await call.sent() if is_read else None
        request = PaidRequest(scope, "http", method, idempotency_key_in(scope, sent))
        said = None if sent is None else await as_far_as_valid(call, sent)
        again = await payment_gate.unpaid(refusal, offer, said, request, shown=said)
        return delivered(again, call)
    return await bought(call, offer, payment, payment_gate, method=method)


async def as_far_as_valid(call: Call, sent: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments in canonical form, which a payment is bound to; as they were sent if they are invalid and can buy nothing."""
    try:
        return await call.canonical()
    except Problem:
        return sent


async def bought(call: Call, offer: Offer, payment: Payment, payment_gate: PaymentGate, *, method: str) -> Answer:
    """The answer that the payment buys. Invalid arguments are refused before anything is reserved."""
    arguments = await call.canonical()
    key = purchase_key(payment, idempotency_key_in(call.scope, await call.sent()))
    request = PaidRequest(call.scope, "http", method, key)
    sale = payment_gate.sale(offer, arguments, request)
    # a payer receives the whole answer, never 304
    call.scope["headers"] = [header for header in call.scope["headers"] if header[0] != b"if-none-match"]

    async def run() -> StoredAnswer:
        return StoredAnswer((await answered(call, offer)).body)

    return delivered(await payment_gate.sell(payment, sale, request, run), call)


def delivered(sold: PaidAnswer, call: Call) -> Answer:
    """A bought answer with its receipt."""
    return json_answer(sold.answer.body, status=call.operation.status).adding(receipt_headers(sold.receipt))
