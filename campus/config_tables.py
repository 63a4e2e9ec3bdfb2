"""The tables of campus.toml that only one part of campus reads: all but [server], [products] and [buildings]."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from campus.addresses import read_exempt_host, read_web_address
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
