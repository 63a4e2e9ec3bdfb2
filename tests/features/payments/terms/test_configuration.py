"""A configuration that cannot sell is refused at start, in a sentence; terms load nothing of x402."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from features.payments.terms.samples import PAY_TO, PAYMENTS, make_seller

import campus as campus_package
from campus import Building, access, route
from campus.config import read_config
from campus.errors import CampusError, ConfigError
from campus.features.payments.ways import OpenWay
from campus.testing import TestCampus, open_campus

pytestmark = pytest.mark.anyio
GOOD = PAYMENTS["payments"]
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a short address": ({"pay_to": "0x1234"}, "payments.pay_to: '0x1234' is not a wallet's address"),
    "an address of no hexadecimal": ({"pay_to": "0x" + "zz" * 20}, "40 hexadecimal digits"),
    "nobody's address": ({"pay_to": "0x" + "0" * 40}, "not all zero"),
    "a name for an address": ({"pay_to": "campus.eth"}, "40 hexadecimal digits"),
    "no web address": ({"facilitators": ["facilitator.example"]}, "payments.facilitators.0.url: write it as https://host/path"),
    "a file": ({"rpc_url": "file:///etc/passwd"}, "payments.rpc_url: write it as https://host/path"),
    "a wallet of one's own that is none": ({"own_wallets": ["0x1"]}, "payments.own_wallets"),
    "an unknown key": ({"payto": PAY_TO}, "unknown key 'payto' in [payments]; there are: network, pay_to"),
    "a secret's own place": ({"facilitator_token": "x"}, "unknown key 'facilitator_token'"),
}


def written(table: dict[str, Any]) -> str:
    lines = [f"{name} = {value!r}".replace("'", '"') for name, value in table.items()]
    return "[payments]\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_is_reported_in_one_sentence(mistake: str, tmp_path: Path) -> None:
    changes, said = MISTAKES[mistake]
    (path := tmp_path / "campus.toml").write_text(written(GOOD | changes))
    with pytest.raises(ConfigError) as caught:
        read_config(path, {})
    assert said in str(caught.value)


@pytest.mark.parametrize("name", GOOD)
def test_a_missing_key_is_named(name: str, tmp_path: Path) -> None:
    (path := tmp_path / "campus.toml").write_text(written({key: value for key, value in GOOD.items() if key != name}))
    with pytest.raises(ConfigError, match=rf"payments\.{name} is missing"):
        read_config(path, {})


def test_a_node_whose_url_holds_a_key_may_come_from_the_environment(tmp_path: Path) -> None:
    (path := tmp_path / "campus.toml").write_text(written({key: value for key, value in GOOD.items() if key != "rpc_url"}))
    payments = read_config(path, {"CAMPUS_PAYMENTS_RPC_URL": "https://node.example/v2/hush"}).payments
    assert payments is not None
    assert payments.rpc_url == "https://node.example/v2/hush"
    with pytest.raises(ConfigError, match=r"payments\.rpc_url: write it as") as caught:
        read_config(path, {"CAMPUS_PAYMENTS_RPC_URL": "hush"})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("unknown", ["eip155:424242", "base"])
async def test_an_unknown_network_is_refused_with_a_list_of_the_known_ones(unknown: str) -> None:
    listed = rf"payments\.network: '{unknown}' is not a network on which campus takes USDC; the networks are: eip155:8453 \(Base\)"
    with pytest.raises(ConfigError, match=listed):
        async with open_campus(tables={"payments": GOOD | {"network": unknown}}, settings={"grants": ["keys"]}, stall=make_seller()):
            pass


CHECKED = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"


@pytest.mark.parametrize("good", [CHECKED, CHECKED.lower()])
async def test_an_address_with_its_checksum_or_without_one_is_accepted(good: str) -> None:
    tables = {"payments": GOOD | {"pay_to": good}}
    async with open_campus(tables=tables, settings={"grants": ["keys"]}, stall=make_seller()) as campus:
        assert campus.service.plan.config.payments.pay_to == good


@pytest.mark.parametrize("bad", [CHECKED.replace("B", "b"), CHECKED.replace("0x5", "0x6")])
async def test_a_mistyped_address_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError, match="its checksum is wrong"):
        async with open_campus(tables={"payments": GOOD | {"pay_to": bad}}, settings={"grants": ["keys"]}, stall=make_seller()):
            pass


def test_only_known_grants_can_be_given(tmp_path: Path) -> None:
    (path := tmp_path / "campus.toml").write_text('[buildings.x]\ngrants = ["money"]\n')
    with pytest.raises(ConfigError, match="'keys'"):
        read_config(path, {})


async def refused_at_start(building: Building, **options: Any) -> str:
    with pytest.raises(CampusError) as caught:
        async with open_campus(tables=PAYMENTS, stall=building, **options):
            pass
    return str(caught.value)


async def test_a_seller_names_the_product_in_an_argument_of_its_own() -> None:
    mcp: FastMCP[Any] = FastMCP("Wrong")

    @mcp.tool(meta=access(key="never", sells="item"))
    async def buy(product: str) -> str:
        """Buy."""
        return product

    said = await refused_at_start(Building(mcp), settings={"grants": ["keys"]})
    assert "sells='item', but has no such argument; the arguments are: product" in said


async def test_a_secret_argument_is_never_part_of_a_url() -> None:
    mcp: FastMCP[Any] = FastMCP("Leaky")

    @mcp.tool(meta=route("GET|POST /v1/leaky") | access(key="never", sells="product"))
    async def buy(product: str, idempotency_key: str) -> str:
        """Buy."""
        return product

    assert "serve it with POST only" in await refused_at_start(Building(mcp), settings={"grants": ["keys"]})


async def test_a_building_that_sells_keys_needs_the_grant_and_products() -> None:
    assert 'write grants = ["keys"] into [buildings.stall]' in await refused_at_start(make_seller())
    with pytest.raises(ConfigError, match="no product"):
        async with open_campus(tables=PAYMENTS | {"products": {}}, settings={"grants": ["keys"]}, stall=make_seller()):
            pass


def test_contradicting_access_of_a_tool_that_sells_is_refused() -> None:
    for words in ({"price": "1", "key": "never"}, {"key": "opens"}, {"key": "optional"}):
        with pytest.raises(ValueError, match="sells needs key"):
            access(sells="product", **words)  # type: ignore[arg-type]  # as somebody might write it


async def test_readyz_and_the_terms_need_neither_facilitator_nor_chain() -> None:
    async with open_campus(tables=PAYMENTS, settings={"grants": ["keys"]}, stall=make_seller()) as campus:
        ready = await campus.http.get("/readyz")
        assert (ready.status_code, ready.json()["checks"]["payments"]) == (200, "ok")
        found = await campus.service.ask("check")
        assert any("facilitator" in sentence for sentence in found["[payments]"])


async def test_terms_are_shown_before_x402_is_loaded_which_one_module_alone_does(campus: TestCampus) -> None:
    assert (await campus.http.get("/v1/stall/text/2026-01-02")).status_code == 402
    ways: Mapping[str, OpenWay] = campus.service.feature("payments").ways
    assert [way.facilitators._loaded for way in ways.values()] == [None]
    campus_folder = Path(campus_package.__file__).parent
    loads = re.compile(r"^(?:from|import) (?:x402|web3|eth_account|campus\.features\.payments\.facilitator)\b", re.MULTILINE)
    found = {path.relative_to(campus_folder).as_posix() for path in campus_folder.rglob("*.py") if loads.search(path.read_text())}
    assert {path for path in found if not path.startswith("features/chain/")} == {"features/payments/facilitator.py"}
