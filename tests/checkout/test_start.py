"""When the checkout starts: with payments, the grant, products, and at the products' own prices."""

import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from buildings.checkout import building
from campus.app import open_servers
from campus.catalog.loader import installed_buildings
from campus.config import Config, config_model, read_config
from campus.errors import ConfigError

pytestmark = pytest.mark.anyio
PAYMENTS = {
    "network": "eip155:8453",
    "pay_to": "0x" + "11" * 20,
    "facilitators": ["http://127.0.0.1:9"],
    "rpc_url": "http://127.0.0.1:9",
}
PRODUCTS = {"cve": {"scope": "cve", "price": "19", "term": "30 days"}}
GRANTED = {"checkout": {"grants": ["keys"]}}


def config(**tables: Any) -> Config:
    return config_model().model_validate(
        {"server": {"openapi": "checkout"}, "payments": PAYMENTS, "products": PRODUCTS, "buildings": GRANTED, **tables}
    )


async def test_the_shipped_checkout_opens_with_payments_products_and_the_grant() -> None:
    directory = (await open_servers(config())).directory
    entry = directory.building("checkout")
    assert entry is not None
    assert [(tool.name, tool.free, tool.http) for tool in entry.tools] == [
        ("list_products", True, ("GET http://127.0.0.1:8000/v1/checkout/products",)),
        ("buy_key", False, ("POST http://127.0.0.1:8000/v1/checkout/keys",)),
    ]
    assert entry.key_scope is None


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"payments": None}, r"\[buildings.checkout\] sells keys for payments, but campus.toml has no table \[payments\]; add it"),
        ({"buildings": {"checkout": {}}}, r'write grants = \["keys"\] into \[buildings.checkout\]'),
        ({"products": {}}, r"campus.toml has no product; add a table such as \[products.NAME\]"),
    ],
)
async def test_a_checkout_that_could_sell_nothing_is_refused_at_start_with_what_to_write(tables: Mapping[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        await open_servers(config(**tables))


async def test_a_price_per_call_cannot_replace_the_products_price() -> None:
    said = r"'buy_key' a price or a key rule, but it sells products at the prices of \[products\]; write buy_key = {}"
    for pattern, word in product(("buy_key", "*"), ({"price": "0.01"}, {"free": True}, {"key": "opens"})):
        with pytest.raises(ConfigError, match=said):
            await open_servers(config(buildings={"checkout": {"grants": ["keys"], "tools": {pattern: word}}}))


async def test_a_pattern_for_all_tools_can_leave_the_sale_out() -> None:
    tools = {"*": {"price": "0.01"}, "buy_key": {}}
    directory = (await open_servers(config(buildings={"checkout": {"grants": ["keys"], "tools": tools}}))).directory
    prices = {tool: entry.price for tool in ("list_products", "buy_key") if (entry := directory.tool("checkout", tool))}
    assert prices == {"list_products": "0.01", "buy_key": None}


def test_the_entry_point_names_it() -> None:
    assert [one.load() for one in installed_buildings() if one.name == "checkout"] == [building]


async def test_the_shipped_campus_toml_opens_it_once_its_lines_are_uncommented(tmp_path: Path) -> None:
    shipped = (Path(__file__).parents[2] / "campus.toml").read_text()
    filled = re.sub(r"(?m)^# (\[|\w+ = )", r"\1", shipped).replace("0x…", PAYMENTS["pay_to"]).replace("https://…", "https://node.example")
    filled = (
        filled.replace("MCPv1; …", "MCPv1; k=ed25519; p=AAAA")
        .replace("glama_claim_…", "glama_claim_x")
        .replace("mailto:…", "mailto:a@b.example")
    )
    path = tmp_path / "campus.toml"
    path.write_text(filled)
    (tmp_path / "logo.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (tmp_path / "templates").mkdir()
    for text in ("terms", "privacy", "refunds"):
        (tmp_path / f"{text}.md").write_text(f"# {text}\n")
    secrets = {"CAMPUS_CARDS_API_KEY": "sk_test_x", "CAMPUS_CARDS_WEBHOOK_SECRET": "whsec_x"}
    directory = (await open_servers(read_config(path, secrets))).directory
    assert [one.name for one in directory.buildings()] == ["gateway", "cve", "recorder", "checkout"]
    sold = directory.tool("checkout", "buy_key")
    assert sold is not None
    assert sold.tier == "the price of the product"
