"""The facilitator: verifies and settles payments through x402's resource server. Only this module imports x402, which takes 1 s."""

import logging
import re
from collections.abc import Mapping
from typing import Any

import anyio
import httpx
from anyio.to_thread import run_sync
from pydantic import ValidationError
from x402 import x402ResourceServer
from x402.http import FacilitatorConfig, HTTPFacilitatorClient
from x402.mechanisms.evm.eip712 import hash_eip3009_authorization
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.mechanisms.evm.types import ExactEIP3009Payload
from x402.mechanisms.evm.utils import get_evm_chain_id
from x402.mechanisms.evm.verify import verify_eoa_signature
from x402.schemas import (
    PaymentError,
    PaymentPayload,
    PaymentPayloadV1,
    PaymentRequirements,
    PaymentRequirementsV1,
    ResourceInfo,
    SettleResponse,
    SupportedKind,
    SupportedResponse,
    VerifyResponse,
)

from campus.errors import one_line
from campus.features.payments.networks import with_checksum
from campus.features.payments.node import TRANSACTION_HASH
from campus.features.payments.payment import Payment, PaymentOutcome, Sale, Verification
from campus.features.payments.terms import JSON

VERIFY_SECONDS = 10.0
SETTLE_SECONDS = 30.0
REST_SECONDS = 30.0
"""How long one that failed is asked after the others."""
ACCOUNT_SIGNATURE = 65
"""In bytes, of an account's signature."""
REPLY_LOST = "settlement_unknown"
PENDING = "settlement_pending"
WITH_STATUS_4XX = re.compile(r"Facilitator verify failed \(4\d\d\): (.*)", re.DOTALL)
DENIALS = frozenset(
    (
        "insufficient_funds",
        "invalid_exact_evm_insufficient_balance",
        "invalid_exact_evm_payload_signature",
        "invalid_exact_evm_payload_undeployed_smart_wallet",
        "invalid_exact_evm_payload_authorization_valid_before",
        "invalid_exact_evm_nonce_already_used",
    )
)
"""What a facilitator says of a payment that it would refuse again. Any other failure, also an unknown one, may be over the next time."""
FAILURES = (httpx.HTTPError, ValueError, RecursionError, PaymentError)
log = logging.getLogger(__name__)


class FacilitatorClient(HTTPFacilitatorClient):
    """x402's client with three changes: it starts without a request, it reads a refusal that has an error's status, and a settlement whose
    reply is lost is a result.
    """

    def __init__(self, config: FacilitatorConfig, network: str) -> None:
        super().__init__(config)
        self._network = network

    def get_supported(self) -> SupportedResponse:
        """What campus offers, without asking the facilitator; `campus check` compares the two."""
        return SupportedResponse(kinds=[SupportedKind(x402_version=2, scheme="exact", network=self._network)])

    async def verify(
        self, payload: PaymentPayload | PaymentPayloadV1, requirements: PaymentRequirements | PaymentRequirementsV1
    ) -> VerifyResponse:
        """Facilitators differ: some answer a payment that is not valid with 400 and the verdict, which x402 raises as a text."""
        try:
            return await super().verify(payload, requirements)
        except ValueError as error:
            if (verdict := refusal_in(str(error))) is None:
                raise
            return verdict

    async def settle(
        self, payload: PaymentPayload | PaymentPayloadV1, requirements: PaymentRequirements | PaymentRequirementsV1
    ) -> SettleResponse:
        """Return a failure as a result: x402's server ignores exceptions here, and treats a refusal after "pending" as final."""
        try:
            answer = await super().settle(payload, requirements)
        except FAILURES as error:
            return SettleResponse(
                success=False, error_reason=REPLY_LOST, error_message=one_line(error), transaction="", network=self._network
            )
        if answer.error_reason == PENDING:
            return answer.model_copy(update={"error_reason": REPLY_LOST, "error_message": "the chain has not confirmed it yet"})
        return answer


class X402Facilitator:
    """One facilitator for one network, with a timeout for each kind of request, which `share` of them have together.

    No method raises for anything that a facilitator does or fails to do. `trouble` is its last failure; None if it has succeeded since.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        *,
        url: str,
        network: str,
        name: str = "",
        share: int = 1,
        verify_seconds: float = VERIFY_SECONDS,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self.name = name
        self._verify_seconds = verify_seconds / share
        self._settle_seconds = settle_seconds / share
        self._server = x402ResourceServer(FacilitatorClient(FacilitatorConfig(url=url, http_client=client), network))
        scheme: Any = ExactEvmServerScheme  # its types and those of `register` do not fit
        self._server.register(network, scheme())
        self._server.initialize()
        self.trouble: str | None = None
        self._rests_until = 0.0

    @property
    def is_resting(self) -> bool:
        """Whether it failed a moment ago, so that others are asked before it."""
        return anyio.current_time() < self._rests_until

    async def mismatch(self, payment: Payment, sale: Sale) -> str | None:
        """Why the terms that the payment accepts are not those of the sale; None when they are. Sends no request."""
        if payment.accepted is None:
            return None
        try:
            payload = PaymentPayload(payload=dict(payment.payload), accepted=PaymentRequirements.model_validate(payment.accepted))
        except ValidationError:
            return "the terms that it accepts cannot be read; copy one entry of `accepts` unchanged"
        if self._server.find_matching_requirements([_requirements(sale)], payload) is None:
            return "the terms that it accepts are not those of this call, or no longer"
        return None

    async def is_signed(self, payment: Payment, sale: Sale) -> bool | None:
        """See `is_signed_by_payer`. In a thread: where eth-keys has no library in C, it takes 20 ms."""
        return await run_sync(is_signed_by_payer, payment, sale)

    async def verify(self, payment: Payment, sale: Sale) -> Verification:
        try:
            with anyio.fail_after(self._verify_seconds):
                answer = await self._server.verify_payment(_payload(payment, sale), _requirements(sale))
        except TimeoutError:
            return self._unreachable("verify: it did not answer in time")
        except FAILURES as error:
            return self._unreachable(f"verify: {one_line(error) or type(error).__name__}")
        if answer.is_valid and not _is_payer(answer.payer, payment.payer):
            return self._unreachable("verify: it answers about another payer")
        self.trouble = None
        reason = one_line(answer.invalid_reason or "the facilitator does not say why")
        return Verification(answer.is_valid, reason, is_denied=answer.invalid_reason in DENIALS)

    def signed(self, payment: Payment, sale: Sale) -> bytes:
        """What `settle` is given to charge the payment, now or later."""
        return _payload(payment, sale).model_dump_json(by_alias=True, exclude_none=True).encode()

    async def settle(self, signed: bytes) -> PaymentOutcome:
        """Charge a payment: settled or unknown, since a report of a failure proves nothing. The chain accepts a nonce once."""
        payload = PaymentPayload.model_validate_json(signed)
        answer: SettleResponse | None = None
        with anyio.move_on_after(self._settle_seconds):
            answer = await self._server.settle_payment(payload, payload.accepted)
        outcome = outcome_of(answer, payer=payload.payload["authorization"]["from"].lower(), network=payload.accepted.network)
        self.note(f"settle: {outcome.reason}" if outcome.state == "unknown" else None)
        return outcome

    def _unreachable(self, reason: str) -> Verification:
        self.note(reason)
        return Verification(valid=False, reason=reason, reachable=False)

    def note(self, trouble: str | None) -> None:
        if trouble is not None:
            log.warning("facilitator in trouble: %s", trouble, extra={"facilitator": self.name})
            self._rests_until = anyio.current_time() + REST_SECONDS
        self.trouble = trouble


def refusal_in(error: str) -> VerifyResponse | None:
    """The refusal of a payment in the text of x402's error; None if the facilitator failed, or answered otherwise."""
    if (found := WITH_STATUS_4XX.fullmatch(error)) is None:
        return None
    try:
        verdict = VerifyResponse.model_validate_json(found[1])
    except ValidationError:
        return None
    return None if verdict.is_valid else verdict


def outcome_of(answer: SettleResponse | None, *, payer: str, network: str) -> PaymentOutcome:
    """What a facilitator's answer to a settlement means; None if it did not answer in time.

    Any answer other than settled counts as unknown: facilitators were seen to refuse payments that they had sent to the chain.
    """
    if answer is None:
        return PaymentOutcome("unknown", reason="it did not answer in time")
    if not answer.success:
        reason = one_line(f"{answer.error_reason or ''} {answer.error_message or ''}")
        return PaymentOutcome("unknown", reason=reason, is_denied=answer.error_reason in DENIALS)
    if answer.network != network:
        return PaymentOutcome("unknown", reason="it says that it settled on another network")
    if not _is_payer(answer.payer, payer):
        return PaymentOutcome("unknown", reason="it says that it settled another payer's payment")
    if not TRANSACTION_HASH.fullmatch(answer.transaction.lower()):
        return PaymentOutcome("unknown", reason="it says that it settled, and names no transaction")
    return PaymentOutcome("settled", answer.transaction.lower())


def _is_payer(named: str | None, payer: str) -> bool:
    return named is None or named.lower() == payer


def is_signed_by_payer(payment: Payment, sale: Sale) -> bool | None:
    """Whether the payer's own key signed the payment; None if only a contract wallet can tell (EIP-1271, EIP-6492)."""
    signature = bytes.fromhex(payment.payload["signature"][2:])
    if len(signature) != ACCOUNT_SIGNATURE:
        return None
    terms = _requirements(sale)
    signed = ExactEIP3009Payload.from_dict(_with_checksums(payment.payload)).authorization
    domain = get_evm_chain_id(terms.network), terms.asset, terms.extra["name"], terms.extra["version"]
    try:
        return verify_eoa_signature(hash_eip3009_authorization(signed, *domain), signature, payment.payer)
    except ValueError:  # its last byte is none that a signature ends with
        return False


def _with_checksums(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What was signed, with addresses as facilitators that are built on web3 want them; the signature is over their bytes."""
    authorization = payload["authorization"]
    return {**payload, "authorization": authorization | {name: with_checksum(authorization[name]) for name in ("from", "to")}}


def _requirements(sale: Sale) -> PaymentRequirements:
    return PaymentRequirements.model_validate(sale.requirements)


def _payload(payment: Payment, sale: Sale) -> PaymentPayload:
    """The payment in the form of x402 v2, whichever version it came in; the terms that it accepts were compared before.

    Resource and extensions are those of the terms, not the payer's: a facilitator lists tools by them.
    """
    about: dict[str, Any] = {"url": sale.resource, "description": sale.description, "mime_type": JSON}
    if (service := sale.service) is not None:
        about |= {"service_name": service.name, "tags": list(service.tags), "icon_url": service.icon_url}
    resource = ResourceInfo(**about)
    return PaymentPayload(
        payload=_with_checksums(payment.payload), accepted=_requirements(sale), resource=resource, extensions=dict(sale.extensions)
    )
