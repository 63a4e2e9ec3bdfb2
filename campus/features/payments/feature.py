"""[payments] of campus.toml, and `campus ledger`."""

import re
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from campus.config_tables import NOBODY, PriceText, WebAddress
from campus.feature import Command, Feature, Settings
from campus.pricing import Price

MOST_FACILITATORS = 4


def _is_wallet(address: str) -> str:
    if not re.fullmatch(r"0x[0-9a-fA-F]{40}", address) or address == NOBODY:
        raise ValueError(f"{address!r} is not a wallet's address; write 0x and 40 hexadecimal digits, not all zero")
    return address


Wallet = Annotated[str, AfterValidator(_is_wallet)]


class FacilitatorTable(Settings):
    """[[payments.facilitators]]: a service that submits payments; it can move money only from the payer to `pay_to`."""

    url: WebAddress
    """Its address, before /verify and /settle."""
    auth: str = "none"
    """How campus shows who it is: `none`, `bearer`, `cdp` (Coinbase's JWT for each request), or what an installed package adds."""
    name: str = Field(default="facilitator", pattern=r"^[a-z][a-z0-9_]{0,30}$")
    """What its secrets are named by: CAMPUS_PAYMENTS_<NAME>_TOKEN for `bearer`, …_KEY_ID and …_KEY_SECRET for `cdp`."""

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc.rpartition("@")[2]


def _as_table(written: Any) -> Any:
    return {"url": written} if isinstance(written, str) else written


def _are_few(facilitators: tuple[FacilitatorTable, ...]) -> tuple[FacilitatorTable, ...]:
    if not 1 <= len(facilitators) <= MOST_FACILITATORS:
        raise ValueError(f"there are {len(facilitators)}; name 1 to {MOST_FACILITATORS}, which share the time that a call may take")
    return facilitators


Facilitators = Annotated[tuple[Annotated[FacilitatorTable, BeforeValidator(_as_table)], ...], AfterValidator(_are_few)]


class NetworkTable(Settings):
    """[[payments.networks]]: a further network on which calls are paid. What it does not say is as in [payments]."""

    network: str
    """The chain, as CAIP-2 names it."""
    rpc_url: WebAddress | None = None
    """A node of it. CAMPUS_PAYMENTS_RPC_URL_<NUMBER OF THE CHAIN> replaces it if it holds a key."""
    pay_to: Wallet | None = None
    """Your wallet's address there."""
    facilitators: Facilitators | None = None
    """Those that serve it, in order."""


class PaymentsTable(Settings):
    """[payments]: payments per call by x402, in USDC."""

    network: str
    """The chain, as CAIP-2 names it: eip155:8453 is Base, eip155:84532 its test network."""
    pay_to: Wallet
    """Your wallet's address. Use one wallet for each database, or both would answer for the same charge."""
    facilitators: Facilitators
    """The services that submit payments, in order: where one fails, the next gets the same payment. Each is an address or a table."""
    rpc_url: WebAddress
    """A node of the network, asked only whether a payment has arrived. CAMPUS_PAYMENTS_RPC_URL replaces it if it holds a key."""
    networks: tuple[NetworkTable, ...] = ()
    """Further networks on which calls are paid."""
    own_wallets: tuple[Wallet, ...] = ()
    """Payers that analytics leave out, and whose transfers to `pay_to` are not reported as unclaimed."""
    prove_above: PriceText = "1"
    """US dollars: a call that costs more waits until the chain shows its payment; with "0" every call does. Bought keys always do."""
    chain_wait_seconds: float = Field(default=60.0, ge=1, le=60)
    """How long a call waits for the chain, from the request to charge its payment; then its caller is told to send the payment again."""

    @field_validator("prove_above")
    @classmethod
    def is_an_amount(cls, text: str) -> str:
        if text.strip("0.") == "" and text.strip("."):
            return text
        try:
            return str(Price.parse(text))
        except ValueError:
            raise ValueError(f'{text!r} is not an amount; write US dollars, such as "0.50", or "0"') from None

    @model_validator(mode="after")
    def has_each_network_once(self) -> Self:
        """A payment names its network, and is paid to one wallet there."""
        names = [self.network, *(one.network for one in self.networks)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"the network {twice[0]} is there twice; it has one wallet")
        return self

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
        "CAMPUS_PAYMENTS_FACILITATOR_TOKEN": 'The bearer token for a facilitator with `auth = "bearer"`; see its `name`.',
        "CAMPUS_PAYMENTS_FACILITATOR_KEY_ID": 'The id of the API key for one with `auth = "cdp"`.',
        "CAMPUS_PAYMENTS_FACILITATOR_KEY_SECRET": "The secret of that key, in PEM or base64.",
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
    found: PaymentsTable | None = getattr(config, "payments", None)
    return found
