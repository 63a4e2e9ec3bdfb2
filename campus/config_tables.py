"""The tables of campus.toml that only one part of campus reads: all but [server], [products] and [buildings]."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from campus.addresses import read_contact, read_exempt_host, read_web_address
from campus.feature import Settings
from campus.pricing import Price

NOBODY = f"0x{'0' * 40}"


class StorageTable(Settings):
    """[storage]: `sqlite:DIRECTORY`, relative to campus.toml, or `postgresql://user@host/database`."""

    url: str = "sqlite:data"
    """A folder of SQLite files, relative to campus.toml; or a PostgreSQL database, which many processes may share; behind a PgBouncer with
    `?pgbouncer=true`."""
    replica: str | None = Field(default=None, examples=["postgresql://campus@db2/campus"])
    """A standby of that PostgreSQL database, which answers what may be some seconds old: badges, counts, tables of calls."""


def _as_text(price: Any) -> Any:
    """A TOML number as text: 0.02 and "0.02" are the same price."""
    return str(price) if isinstance(price, int | float) and not isinstance(price, bool) else price


PriceText = Annotated[str, BeforeValidator(_as_text)]


def _is_wallet(address: str) -> str:
    if not re.fullmatch(r"0x[0-9a-fA-F]{40}", address) or address == NOBODY:
        raise ValueError(f"{address!r} is not a wallet's address; write 0x and 40 hexadecimal digits, not all zero")
    return address


Wallet = Annotated[str, AfterValidator(_is_wallet)]
WebAddress = Annotated[str, AfterValidator(read_web_address)]


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


class MailTable(Settings):
    """[mail]: the SMTP server that takes the service's e-mail; its password is CAMPUS_MAIL_PASSWORD."""

    host: str = Field(pattern=r"^[A-Za-z0-9.:-]+$", examples=["smtp.example"])
    """The server's name or address."""
    port: int = Field(default=587, ge=1, le=65535)
    """The server's port."""
    sender: str
    """An address, or `Name <address>`."""
    username: str | None = None
    """Default: the sender's address, when there is a password."""
    tls: Literal["implicit", "starttls", "none"] | None = None
    """Default: implicit on port 465, starttls with a password, else whatever the server offers."""


class WebTable(Settings):
    """[web]: the rules for URLs that callers send."""

    allowed_hosts: frozenset[Annotated[str, AfterValidator(read_exempt_host)]] = frozenset()
    """Exempt from the address rules, with http and any port too: for tests and local use."""


class DiscoveryTable(Settings):
    """[discovery]: what crawlers and registries are told of the service."""

    contact: Annotated[str, AfterValidator(read_contact)] | None = None
    """Where people write to you: /pricing names it, and /.well-known/security.txt for reports of vulnerabilities."""
    indexed: bool = True
    """False keeps search engines and AI crawlers out, in robots.txt."""
    ai_training: bool = False
    """True lets AI companies train on what their crawlers read, in robots.txt."""
    namespace: str | None = Field(default=None, pattern=r"^[a-zA-Z0-9][a-zA-Z0-9.-]{0,98}[a-zA-Z0-9]$", examples=["io.github.acme"])
    """The servers' namespace in the MCP registry, such as io.github.acme; default: the public address in reverse."""
    registry_proof: str | None = Field(default=None, pattern=r"^v=MCPv1; k=[a-z0-9]+; p=[A-Za-z0-9+/=_-]+$", examples=["v=MCPv1; …"])
    """The line that `mcp-publisher login http` asks for, served at /.well-known/mcp-registry-auth."""
    glama_claim: str | None = Field(default=None, pattern=r"^glama_claim_[A-Za-z0-9_-]+$", examples=["glama_claim_…"])
    """The claim that Glama asks for, served at /.well-known/glama.json."""
