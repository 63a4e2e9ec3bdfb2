"""Stripe's API through its own library: Checkout Sessions are opened and read, and webhooks' signatures verified.

Answers become plain data at once: a member that this version of the API lacks is None, and no word of it is trusted here.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import anyio
import httpx
import stripe

from campus.errors import CampusError, one_line
from campus.features.cards.tables import CardSale
from campus.outbound.http_clients import BoundedClient

SECONDS = 15.0  # For one question, with its retries.
RETRIES = 2
ATOMIC_PER_CENT = 10_000
DELIVERY = "The key is shown in this browser once the payment is complete."


class StripeUnavailable(CampusError):
    """Stripe did not answer, or refused; the sentence is for the operator."""


class SessionUnknown(StripeUnavailable):
    """The key that is set does not know the session."""


class WebhookRefused(CampusError):
    """The body is not one that Stripe signed with this secret within the last five minutes."""


class Checkout(NamedTuple):
    """A Checkout Session as Stripe describes it, in its own words; `amount` is in cents, and `seller` and `sale` are those of `opened`."""

    id: str | None
    seller: str | None
    sale: str | None
    url: str | None
    status: str | None
    payment_status: str | None
    amount: int | None
    currency: str | None
    livemode: bool | None
    intent: str | None


def checkout_of(session: Mapping[str, Any]) -> Checkout:
    return Checkout(
        session.get("id"),
        (session.get("metadata") or {}).get("campus"),
        session.get("client_reference_id"),
        session.get("url"),
        session.get("status"),
        session.get("payment_status"),
        session.get("amount_total"),
        session.get("currency"),
        session.get("livemode"),
        id_of(session.get("payment_intent")),
    )


def id_of(value: Any) -> str | None:
    """The id of what Stripe names by its id, or shows whole."""
    return value.get("id") if isinstance(value, Mapping) else value


class Bounded(stripe.HTTPClient):
    """Stripe's requests by a client that reads no more than a bounded answer."""

    name = "httpx"

    def __init__(self, client: BoundedClient) -> None:
        super().__init__()
        self._client = client

    async def request_async(
        self, method: str, url: str, headers: Mapping[str, str], post_data: Any = None
    ) -> tuple[bytes, int, Mapping[str, str]]:
        try:
            response = await self._client.request(method, url, headers=dict(headers), content=post_data or None)
        except httpx.HTTPError as error:
            reason = one_line(error) or type(error).__name__
            raise stripe.APIConnectionError(reason, should_retry=True) from error  # type: ignore[no-untyped-call]  # its own
        return response.content, response.status_code, response.headers

    async def sleep_async(self, secs: float) -> None:
        await anyio.sleep(secs)


class Stripe:
    """What campus asks Stripe. `seller` is the public address, which its sessions carry: an account may have other shops;
    `finality` is said before the payment."""

    def __init__(self, client: BoundedClient, *, key: str, secret: str, url: str, seller: str, finality: str) -> None:
        self._finality = finality
        self.is_live = key[2:].startswith("_live_")
        self.trouble: str | None = None  # Its last failure; None if it answered since.
        self._secret = secret
        self.seller = seller
        stripe.enable_telemetry = False
        self._api = stripe.StripeClient(key, base_addresses={"api": url}, max_network_retries=RETRIES, http_client=Bounded(client)).v1

    async def opened(self, sale: CardSale, *, title: str, description: str, back: str) -> Checkout:
        """The session of a sale, which leads to the path `back`; asked twice, Stripe returns the same one."""
        here, metadata = f"{self.seller}{back}", {"campus": self.seller, "sale": sale.id}
        about = {"name": title} | ({"description": description} if description else {})
        price = {"currency": "usd", "unit_amount": sale.amount // ATOMIC_PER_CENT, "product_data": about}
        asked: Any = {
            "mode": "payment",
            "allowed_payment_method_types": ["card"],
            "adaptive_pricing": {"enabled": False},
            "line_items": [{"quantity": 1, "price_data": price}],
            "client_reference_id": sale.id,
            "metadata": metadata,
            "payment_intent_data": {"metadata": metadata},
            "custom_text": {"submit": {"message": f"{self._finality} {DELIVERY}"}},
            "success_url": here,
            "cancel_url": here,
            "expires_at": int(sale.ends_at.timestamp()),
        }
        options: Any = {"idempotency_key": f"campus {sale.id}"}
        return checkout_of(await self._ask(lambda: self._api.checkout.sessions.create_async(asked, options)))

    async def session(self, session: str) -> Checkout:
        return checkout_of(await self._ask(lambda: self._api.checkout.sessions.retrieve_async(session)))

    async def session_of(self, intent: str) -> Checkout | None:
        """The session that was paid by a payment intent."""
        found = await self._ask(lambda: self._api.checkout.sessions.list_async({"payment_intent": intent, "limit": 1}))
        return next(map(checkout_of, found["data"]), None)

    async def check(self) -> None:
        """StripeUnavailable if the key cannot be used."""
        await self._ask(lambda: self._api.checkout.sessions.list_async({"limit": 1}))

    def event(self, body: bytes, signature: str | None) -> Mapping[str, Any]:
        """The event that Stripe sent. WebhookRefused for what it did not sign."""
        try:
            stripe.WebhookSignature.verify_header(body, signature, self._secret, stripe.Webhook.DEFAULT_TOLERANCE)
            event: dict[str, Any] = json.loads(body)
        except (stripe.SignatureVerificationError, ValueError) as error:  # ValueError: of bytes that are no text, or no JSON
            raise WebhookRefused(one_line(error)) from None
        return event

    async def _ask(self, question: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
        try:
            with anyio.fail_after(SECONDS):
                found: dict[str, Any] = (await question()).to_dict()
        except stripe.InvalidRequestError as error:
            if error.code == "resource_missing":
                raise SessionUnknown(f"Stripe does not know what is asked for: {one_line(error)}") from None
            raise self._failed(f"Stripe refuses what campus asks: {one_line(error)}") from None
        except (stripe.AuthenticationError, stripe.PermissionError) as error:
            raise self._failed(f"Stripe refuses CAMPUS_CARDS_API_KEY; docs/cards.md says what it needs: {one_line(error)}") from None
        except (stripe.StripeError, TimeoutError) as error:
            raise self._failed(f"Stripe does not answer: {one_line(error) or type(error).__name__}") from None
        self.trouble = None
        return found

    def _failed(self, sentence: str) -> StripeUnavailable:
        self.trouble = sentence
        return StripeUnavailable(sentence)
