"""A tool's declared price and access, and the operator's overrides."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campus import access, free
from campus.catalog.server import ToolOverrides
from campus.config import BuildingTable, ToolTable
from campus.pricing import Price, access_of


@given(st.integers(1, 10**12))
def test_a_price_survives_being_written_and_read(atomic: int) -> None:
    price = Price(atomic)
    assert Price.parse(str(price)) == price
    assert Decimal(str(price)).scaleb(6) == atomic


@pytest.mark.parametrize(
    "text", ["0", "-1", "0.0000001", "nan", "inf", "1e-9", "", "$1", "1,5", "1e999999", "1_9", " 19", "\u0661", "1" * 20, f"0.02{0:030}1"]
)
def test_an_invalid_price_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"price"):
        access(price=text)


def test_the_interface_prices_are_exact() -> None:
    assert [Price.parse(text).atomic for text in ("0.02", "0.01", "0.005", "0.05")] == [20_000, 10_000, 5_000, 50_000]


def test_contradictory_access_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a price"):
        access(key="never")
    with pytest.raises(ValueError, match="remove the price"):
        access(key="optional", price="1")


def test_a_tool_without_access_differs_from_a_free_one() -> None:
    assert access_of(None) is None
    assert access_of({"other": 1}) is None
    said = access_of(free())
    assert said is not None
    assert said.is_free


def test_the_most_specific_pattern_wins() -> None:
    prices = {"*": "1", "get_*": "2", "get_article": "3", "*_article": "4"}
    table = BuildingTable(tools={pattern: ToolTable(price=price) for pattern, price in prices.items()})
    overrides = ToolOverrides("wiki", "wiki", table, per_call=False)
    assert [overrides.override_for(tool).price for tool in ("other", "get_links", "get_article", "an_article")] == ["1", "2", "3", "4"]
