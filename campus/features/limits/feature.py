"""[limits] of campus.toml."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from campus.feature import Feature, Settings

MOST_CALLS = 10_000_000


def _is_limit(calls: Any) -> Any:
    if calls != "off" and not (isinstance(calls, int) and 1 <= calls <= MOST_CALLS):
        raise ValueError(f'write the calls a minute, a whole number from 1 to {MOST_CALLS:,}, or "off"')
    return calls


CallsAMinute = Annotated[int | Literal["off"], BeforeValidator(_is_limit)]


class LimitsTable(Settings):
    """[limits]: how many calls a minute all processes together answer; further ones get 429. "off" takes a limit away."""

    free: CallsAMinute = 600
    """The calls a minute of free tools without a key, from one address (an IPv6 /64)."""
    keyed: CallsAMinute = 6_000
    """The calls a minute with one key, and with those that replaced it; also of free tools."""
    unpaid: CallsAMinute = 600
    """The calls a minute that bring neither a valid key nor a payment for a tool that is not free, from one address (an IPv6 /64)."""
    building: CallsAMinute = "off"
    """The calls a minute of one building by all callers together, to leave room for other buildings; one caller can use it up."""


feature = Feature(
    "campus.features.limits.opened:building", settings=LimitsTable, tables="campus.features.limits.tables:Tables", always=True
)
