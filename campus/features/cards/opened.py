"""What cards give a campus: the sales of this process, their pages, jobs and checks, and what the plan says of where keys are bought."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from secrets import token_bytes
from urllib.parse import urlsplit

import httpx

from campus.addresses import is_loopback
from campus.building import Building, Check, Job
from campus.catalog.parts import FeatureSite, PlanPart
from campus.catalog.server import OpenBuilding
from campus.checks import Warned
from campus.config import Config
from campus.errors import ConfigError
from campus.features.cards.feature import API_KEY, WEBHOOK_SECRET, CardsTable
from campus.outbound.http_clients import BoundedClient, certificate_authorities
from campus.pricing import Price
from campus.secrets import is_sendable

try:
    from campus.features.cards.pages import WEBHOOK, CardPages
    from campus.features.cards.sales import CardSales
    from campus.features.cards.stripe_api import ATOMIC_PER_CENT, Stripe, StripeUnavailable
except ModuleNotFoundError as missing:
    if missing.name != "stripe":
        raise
    raise ConfigError("[cards] needs stripe, which is not installed; run: pip install 'mcp-campus[cards]'") from None

LEAST = Price.parse("0.50")
"""What Stripe charges at least, in dollars."""
KEYS = ("sk_live_", "rk_live_", "sk_test_", "rk_test_")
REQUEST = httpx.Timeout(10.0, connect=5.0)
CardsSite = FeatureSite[CardsTable, CardSales]


class CardsPlan(PlanPart):
    """ConfigError for what cannot be sold by card."""

    def __init__(self, config: Config, settings: CardsTable, opened: Sequence[OpenBuilding]) -> None:
        secrets_of(config)
        for name, product in config.products.items():
            price = Price.parse(product.price)
            if price < LEAST or price.atomic % ATOMIC_PER_CENT:
                raise ConfigError(f"[products.{name}] costs ${price}, and cards are charged whole cents from ${LEAST} on; change its price")
        self.shop = f"{config.url}/pricing, by card"


def secrets_of(config: Config) -> tuple[str, str]:
    """The key of Stripe's API, and the secret of its webhooks. ConfigError without them."""
    key, secret = (config.secrets[name].get_secret_value() if name in config.secrets else "" for name in (API_KEY, WEBHOOK_SECRET))
    if not key.startswith(KEYS) or not is_sendable(key):
        raise ConfigError(f"[cards] needs a key of Stripe's API: set {API_KEY} to one that begins with {', '.join(KEYS)}")
    if not secret:
        raise ConfigError(f"[cards] needs a webhook: add {config.url}{WEBHOOK} at Stripe, and set {WEBHOOK_SECRET} to its secret")
    return key, secret


@asynccontextmanager
async def opened(site: FeatureSite[CardsTable, None]) -> AsyncIterator[CardSales]:
    key, secret = secrets_of(site.config)
    async with BoundedClient(timeout=REQUEST, trust=certificate_authorities()) as client:
        url, finality = site.settings.api_url, site.directory.finality
        stripe = Stripe(client, key=key, secret=secret, url=url, seller=site.url, finality=finality)
        yield CardSales(storage=site.storage, keys=site.core.keys, stripe=stripe, now=site.clock, entropy=token_bytes)


async def reconcile_cards(site: CardsSite) -> bool:
    """Ask Stripe what became of sales whose time is over; returns whether there were any."""
    return await site.state.reconcile()


async def check(site: CardsSite) -> Sequence[str]:
    """Whether Stripe takes the key and can send webhooks, and the sales that need the operator."""
    found: list[str] = []
    stripe, parts = site.state.stripe, urlsplit(site.url)
    try:
        await stripe.check()
    except StripeUnavailable as error:
        found.append(str(error))
    if parts.scheme != "https" and (stripe.is_live or not is_loopback(parts.hostname or "")):
        found.append(f"Stripe sends webhooks to https addresses only, and this service is at {site.url}; set public_url to https://…")
    if not stripe.is_live and parts.scheme == "https":
        found.append(Warned(f"{API_KEY} is a key for tests: no card is charged, and test cards buy real keys"))
    for sale in await site.state.doubtful():
        act = "look it up at Stripe, and refund it there or issue a key"
        if sale.state == "won":
            act = f"its buyer may be given a new key, `campus key issue {sale.product}`"
        payment = sale.intent or "no payment known"
        found.append(Warned(f"sale {sale.id} of {sale.product} (${Price(sale.amount)}, {payment}) is {sale.state}: {sale.reason}; {act}"))
    return found


async def findings(site: CardsSite) -> Sequence[str]:
    """Stripe's last failure, unless it answered since."""
    return [site.state.stripe.trouble] if site.state.stripe.trouble else []


building = Building(
    state=opened,
    plans=CardsPlan,
    http=CardPages,
    problems={
        "cards_unavailable": "Stripe cannot be reached, or refuses the request. Nothing is charged; try again after Retry-After.",
        "too_many_purchases": "Too many purchases by card were begun and not paid. Nothing was charged; try again after Retry-After.",
        "sale_unknown": "There is no sale at the address: it ended unpaid, or the address is wrong.",
        "webhook_refused": "Only webhooks that Stripe signed within the last five minutes are taken.",
    },
    jobs=[Job(reconcile_cards, every=timedelta(minutes=1))],
    checks=[Check(check), Check(findings, on="ready")],
)
