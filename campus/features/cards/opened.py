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
CAUGHT_UP = timedelta(days=3)
"""How far back events are heard again: a process that was down over a weekend misses none."""
CardsSite = FeatureSite[CardsTable, CardSales]


class CardsPlan(PlanPart):
    """ConfigError for what cannot be sold by card."""

    def __init__(self, config: Config, settings: CardsTable, opened: Sequence[OpenBuilding]) -> None:
        key_of(config)
        for name, product in config.products.items():
            price = Price.parse(product.price)
            if price < LEAST or price.atomic % ATOMIC_PER_CENT:
                raise ConfigError(f"[products.{name}] costs ${price}, and cards are charged whole cents from ${LEAST} on; change its price")
        self.shop = f"{config.url}/pricing, by card"


def key_of(config: Config) -> str:
    """The key of Stripe's API. ConfigError without one."""
    key = config.secrets[API_KEY].get_secret_value() if API_KEY in config.secrets else ""
    if not key.startswith(KEYS):
        raise ConfigError(f"[cards] needs a key of Stripe's API: set {API_KEY} to one that begins with {', '.join(KEYS)}")
    return key


@asynccontextmanager
async def opened(site: FeatureSite[CardsTable, None]) -> AsyncIterator[CardSales]:
    secret = site.config.secrets.get(WEBHOOK_SECRET)
    async with BoundedClient(timeout=REQUEST, trust=certificate_authorities()) as client:
        stripe = Stripe(
            client,
            key=key_of(site.config),
            secret=secret.get_secret_value() if secret else None,
            url=site.settings.api_url,
            seller=site.url,
            finality=site.directory.finality,
        )
        yield CardSales(
            storage=site.storage,
            keys=site.core.keys,
            stripe=stripe,
            seller=site.url,
            now=site.clock,
            entropy=token_bytes,
        )


async def reconcile_cards(site: CardsSite) -> bool:
    """Ask Stripe what became of sales whose time is over; returns whether there were any."""
    return await site.state.reconcile()


async def catch_up_cards(site: CardsSite) -> None:
    """Hear what Stripe noted and no webhook told: payments, refunds and disputes."""
    await site.state.catch_up(since=site.now() - CAUGHT_UP)


async def check(site: CardsSite) -> Sequence[str]:
    """Whether Stripe takes the key, and whether webhooks can arrive."""
    found: list[str] = []
    sales = site.state
    try:
        await sales.stripe.check()
    except StripeUnavailable as error:
        found.append(str(error))
    if not sales.stripe.has_webhook:
        found.append(
            f"webhooks of Stripe are refused: add the endpoint {site.url}{WEBHOOK} at Stripe, and set {WEBHOOK_SECRET} to its signing"
            " secret; until then a key is delivered when its buyer returns or within the hour, as disputes are noticed"
        )
    parts = urlsplit(site.url)
    if parts.scheme != "https" and (sales.stripe.is_live or not is_loopback(parts.hostname or "")):
        found.append(f"Stripe sends webhooks to https addresses only, and this service is at {site.url}; set public_url to https://…")
    if not sales.stripe.is_live and parts.scheme == "https":
        found.append(Warned(f"{API_KEY} is a key for tests: no card is charged, and test cards buy real keys"))
    return [*found, *await doubtful(site)]


async def doubtful(site: CardsSite) -> Sequence[str]:
    """The sales that need the operator."""
    return [
        Warned(
            f"sale {one.id} of {one.product} (${Price(one.amount)}, {one.intent or 'no payment known'}) is {one.state}: {one.reason}; {act}"
        )
        for one in await site.state.doubtful()
        for act in (
            [f"its buyer may be given a new key, `campus key issue {one.product}`"]
            if one.state == "won"
            else ["look it up at Stripe, and refund it there or issue a key"]
        )
    ]


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
    jobs=[Job(reconcile_cards, every=timedelta(minutes=1)), Job(catch_up_cards, every=timedelta(hours=1))],
    checks=[Check(check), Check(findings, on="ready")],
)
