"""The tables of campus.toml that only one part of campus reads: all but [server], [products] and [buildings]."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from campus.addresses import read_contact, read_exempt_host, read_web_address
from campus.feature import Settings

NOBODY = f"0x{'0' * 40}"


class StorageTable(Settings):
    """[storage]: `sqlite:DIRECTORY`, relative to campus.toml, or `postgresql://user@host/database`."""

    url: str = "sqlite:data"
    """A folder of SQLite files, relative to campus.toml; or a PostgreSQL database, which many processes may share; behind a PgBouncer with
    `?pgbouncer=true`."""


def _as_text(price: Any) -> Any:
    """A TOML number as text: 0.02 and "0.02" are the same price."""
    return str(price) if isinstance(price, int | float) and not isinstance(price, bool) else price


PriceText = Annotated[str, BeforeValidator(_as_text)]


WebAddress = Annotated[str, AfterValidator(read_web_address)]


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
