"""[payments] of campus.toml, and `campus ledger`."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator

from campus.config_tables import NOBODY, PriceText, WebAddress
from campus.feature import Command, Feature, Settings
from campus.pricing import Price

FACILITATOR_TOKEN = "CAMPUS_PAYMENTS_FACILITATOR_TOKEN"  # noqa: S105  # the variable's name, not a token


def _is_wallet(address: str) -> str:
    if not re.fullmatch(r"0x[0-9a-fA-F]{40}", address) or address == NOBODY:
        raise ValueError(f"{address!r} is not a wallet's address; write 0x and 40 hexadecimal digits, not all zero")
    return address


Wallet = Annotated[str, AfterValidator(_is_wallet)]


class PaymentsTable(Settings):
    """[payments]: payments per call by x402, in USDC. CAMPUS_PAYMENTS_FACILITATOR_TOKEN goes to the facilitator as a bearer."""

    network: str
    """The chain, as CAIP-2 names it: eip155:8453 is Base, eip155:84532 its test network."""
    pay_to: Wallet
    """Your wallet's address. Use one wallet for each database, or both would answer for the same charge."""
    facilitator_url: WebAddress
    """The service that submits payments; it can move money only from the payer to `pay_to`."""
    rpc_url: WebAddress
    """A node of the network, asked only whether a payment has arrived. CAMPUS_PAYMENTS_RPC_URL replaces it if it holds a key."""
    own_wallets: tuple[Wallet, ...] = ()
    """Payers that analytics leave out, and whose transfers to `pay_to` are not reported as unclaimed."""
    prove_above: PriceText = "1"
    """US dollars: a call that costs more waits until the chain shows its payment; with "0" every call does. Bought keys always do."""
    chain_wait_seconds: float = Field(default=60.0, ge=1, le=60)
    """How long a call waits for the chain, from the request to charge its payment; then its caller is told to send the payment again."""

    @field_validator("prove_above")
    @classmethod
    def is_an_amount(cls, text: str) -> str:
        """Dollars, or zero."""
        if text.strip("0.") == "" and text.strip("."):
            return text
        try:
            return str(Price.parse(text))
        except ValueError:
            raise ValueError(f'{text!r} is not an amount; write US dollars, such as "0.50", or "0"') from None

    @property
    def proved_above(self) -> int:
        """`prove_above` in the token's smallest unit."""
        return 0 if self.prove_above.strip("0.") == "" else Price.parse(self.prove_above).atomic


feature = Feature(
    "campus.features.payments.opened:building",
    settings=PaymentsTable,
    tables="campus.features.payments.tables:Tables",
    commands=[
        Command(
            "ledger",
            "campus.features.payments.command:app",
            "What was offered and paid: list, sum, export, funnel, reconcile with the chain, accept unproven payments.",
        )
    ],
    variables={
        FACILITATOR_TOKEN: "Goes to the facilitator as a bearer token.",
        "CAMPUS_PAYMENTS_RPC_URL": "Replaces `[payments] rpc_url` where that address holds a key.",
    },
    spans={
        ("campus.features.payments.processor:PaymentProcessor", "process"): "sell",
        ("campus.features.payments.settlement:Settlement", "settle"): "settle",
    },
    always=True,
    sells=True,
    paths=["/pricing"],
    headers=("PAYMENT-REQUIRED", "PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE"),
)


def payments_table(config: Any) -> PaymentsTable | None:
    """[payments] of a configuration; None without it."""
    found: PaymentsTable | None = getattr(config, "payments", None)
    return found


def token_of(config: Any) -> str | None:
    """What the facilitator gets as a bearer token."""
    secret = config.secrets.get(FACILITATOR_TOKEN)
    return secret.get_secret_value() if secret else None
