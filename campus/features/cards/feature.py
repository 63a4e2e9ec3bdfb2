"""[cards] of campus.toml."""

from campus.config_tables import WebAddress
from campus.feature import Feature, Settings

API_KEY, WEBHOOK_SECRET = "CAMPUS_CARDS_API_KEY", "CAMPUS_CARDS_WEBHOOK_SECRET"


class CardsTable(Settings):
    """[cards]: sells the products by card, at Stripe's Checkout; the secrets are CAMPUS_CARDS_API_KEY and CAMPUS_CARDS_WEBHOOK_SECRET."""

    api_url: WebAddress = "https://api.stripe.com"
    """Where Stripe's API is; another one only for tests."""


feature = Feature(
    "campus.features.cards.opened:building",
    settings=CardsTable,
    tables="campus.features.cards.tables:Tables",
    variables={
        API_KEY: "The secret or restricted key of Stripe's API for `[cards]`: sk_… or rk_….",
        WEBHOOK_SECRET: "What Stripe signs its webhooks with, for `[cards]`: whsec_….",
    },
)
