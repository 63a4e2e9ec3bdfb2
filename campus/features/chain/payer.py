"""A payer for tests: x402's clients over HTTP, the same payments over MCP, and payments that no honest client would sign."""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, TypeVar

import httpx
from eth_account import Account
from fastmcp import Client
from fastmcp.client.client import CallToolResult
from pydantic_core import from_json
from x402 import parse_payment_payload, parse_payment_required, x402Client, x402ClientSync
from x402.http import encode_payment_signature_header
from x402.http.clients.httpx import x402_httpx_transport
from x402.mechanisms.evm.exact import register_exact_evm_client

from campus.features.chain.contract_wallets import ContractSigner, ContractWallet
from campus.features.chain.usdc import Wallet

PAYMENT = "x402/payment"
"""The member of a call's _meta that holds the payment."""
RECEIPT = "x402/payment-response"
"""The member of a result's _meta that holds the receipt."""
HEADERS = {1: "X-PAYMENT", 2: "PAYMENT-SIGNATURE"}
SIGNED = {"sender": "from", "to": "to", "value": "value", "valid_after": "validAfter", "valid_before": "validBefore", "nonce": "nonce"}
"""What is signed, by its name on the wire."""
ACCEPTED = {"scheme": "scheme", "network": "network", "asset": "asset", "amount": "amount", "pay_to": "payTo", "extra": "extra"}
"""What the payment says that it accepts, by its name on the wire."""
OTHERS = ("resource", "signature")
SPEND_LIMIT = "$1"
"""Per payment: the default of x402's clients."""
AnyClient = TypeVar("AnyClient", x402Client, x402ClientSync)


class Payer:
    """A client with a wallet. Like x402's clients it refuses to pay more than a dollar per payment unless `max_dollars` is set."""

    def __init__(self, wallet: Wallet, *, max_dollars: int | None = None) -> None:
        self.wallet = wallet
        self._client = self._ready(x402ClientSync(), max_dollars)
        self._max_dollars = max_dollars

    def payload(self, payment_required: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
        """A payment for the terms of a 402, version 2 or 1; with `changes`, what a hostile payer would sign and send.

        Changes of what is signed: sender, to, value, valid_after, valid_before, nonce. Changes of what the payment says that it accepts:
        scheme, network, asset, amount, pay_to, extra; network, asset and extra (name and version) are signed too. `resource` is the URL
        that the payment says it is for. `signature` is sent unchanged.
        """
        payment = self._client.create_payment_payload(parse_payment_required(dict(payment_required)))
        dumped: dict[str, Any] = payment.model_dump(by_alias=True, exclude_none=True)
        return self._changed(dumped, changes) if changes else dumped

    def pay_headers(self, payment_required: Mapping[str, Any], **changes: Any) -> dict[str, str]:
        """The request header of such a payment: PAYMENT-SIGNATURE, or X-PAYMENT for terms of version 1."""
        return headers_of(self.payload(payment_required, **changes))

    def http(
        self, base_url: str = "", *, transport: httpx.AsyncBaseTransport | None = None, max_dollars: int | None = None, **options: Any
    ) -> httpx.AsyncClient:
        """x402's HTTP client, which pays when it receives a 402. `transport` is for an app in this process; `options` are for httpx."""
        client = self._ready(x402Client(), max_dollars or self._max_dollars)
        return httpx.AsyncClient(base_url=base_url, transport=x402_httpx_transport(client, transport), **options)

    async def call_mcp(
        self, client: Client[Any], tool: str, arguments: Mapping[str, Any] | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> CallToolResult:
        """Call a tool; if it returns payment terms, call it again with a payment. The receipt is in the result's `meta`."""
        given = dict(arguments or {})
        sent_meta = dict(meta or {})
        first = await client.call_tool(tool, given, meta=sent_meta, raise_on_error=False)
        terms = first.structured_content or {}
        if not first.is_error or "accepts" not in terms:
            return first
        return await client.call_tool(tool, given, meta={**sent_meta, PAYMENT: self.payload(terms)}, raise_on_error=False)

    def _ready(self, client: AnyClient, max_dollars: int | None) -> AnyClient:
        client.set_spend_controls({"max_amount_per_payment": SPEND_LIMIT if max_dollars is None else f"${max_dollars}"})
        signer = ContractSigner(self.wallet) if isinstance(self.wallet, ContractWallet) else Account.from_key(self.wallet.key)
        return register_exact_evm_client(client, signer)

    def _changed(self, payment: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        unknown = changes.keys() - SIGNED.keys() - ACCEPTED.keys() - set(OTHERS)
        if unknown:
            raise TypeError(f"unknown changes: {', '.join(sorted(unknown))}; the changes are: {', '.join([*SIGNED, *ACCEPTED, *OTHERS])}")
        accepted = payment.get("accepted", payment)
        accepted |= {ACCEPTED[name]: value if name == "extra" else str(value) for name, value in changes.items() if name in ACCEPTED}
        if "resource" in changes:
            payment["resource"] = {**payment.get("resource", {}), "url": changes["resource"]}
        authorization = payment["payload"]["authorization"]
        authorization |= {SIGNED[name]: str(value) for name, value in changes.items() if name in SIGNED}
        payment["payload"]["signature"] = changes.get("signature") or self.wallet.sign_transfer(authorization, **_domain(accepted))
        return payment


def headers_of(payment: Mapping[str, Any]) -> dict[str, str]:
    """The request header that carries a payment."""
    return {HEADERS[payment["x402Version"]]: encode_payment_signature_header(parse_payment_payload(dict(payment)))}


def terms_of(response: httpx.Response) -> dict[str, Any]:
    """The terms of a 402, from its PAYMENT-REQUIRED header."""
    return _header(response, "payment-required")


def receipt_of(response: httpx.Response) -> dict[str, Any]:
    """The receipt of a paid answer, from its PAYMENT-RESPONSE header."""
    return _header(response, "payment-response")


def _header(response: httpx.Response, name: str) -> dict[str, Any]:
    found: dict[str, Any] = from_json(b64decode(response.headers[name]))
    return found


def _domain(accepted: Mapping[str, Any]) -> dict[str, Any]:
    """The members of the signing domain that the accepted terms name. Payments of version 1 have none, so the token's own are signed."""
    if "asset" not in accepted:
        return {}
    extra = {name: value for name, value in accepted.get("extra", {}).items() if name in ("name", "version")}
    return {"chainId": int(accepted["network"].rpartition(":")[2]), "verifyingContract": accepted["asset"], **extra}
