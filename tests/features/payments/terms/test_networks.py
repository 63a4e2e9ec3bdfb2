"""The table of networks agrees with x402's own."""

import pytest
from x402.mechanisms.evm.default_assets import DEFAULT_ASSETS
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.mechanisms.evm.v1.constants import V1_NETWORK_CHAIN_IDS

from campus.errors import ConfigError
from campus.features.payments.networks import NETWORKS, Network, id_of_legacy, network_of
from campus.features.payments.terms import Payee
from campus.pricing import Price


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.title)
def test_each_network_is_as_x402_knows_it(network: Network) -> None:
    default = DEFAULT_ASSETS[network.id][0]
    assert (network.asset, network.name, network.version) == (default["asset"], default["name"], default["version"])
    assert (default["decimals"], default["symbol"]) == (6, "USDC")
    assert "asset_transfer_method" not in default
    legacy = {chain_id: name for name, chain_id in V1_NETWORK_CHAIN_IDS.items()}
    assert network.legacy == legacy.get(network.chain_id)


def test_no_network_on_which_x402_accepts_usdc_by_authorization_is_missing() -> None:
    takes = {id for id, (first, *_) in DEFAULT_ASSETS.items() if first["symbol"] == "USDC" and "asset_transfer_method" not in first}
    assert takes == {network.id for network in NETWORKS}


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.title)
def test_a_price_becomes_the_amount_that_x402_makes_of_it(network: Network) -> None:
    for price in ("0.02", "0.01", "0.005", "0.05", "19", "149", "0.000001"):
        wanted = ExactEvmServerScheme().parse_price(f"${price}", network.id)
        made = Payee(network, "0x" + "ab" * 20).requirements(Price.parse(price))
        assert (made["amount"], made["asset"], made["extra"]) == (wanted.amount, wanted.asset, wanted.extra), price


def test_an_unknown_network_is_refused_with_a_list() -> None:
    with pytest.raises(ConfigError, match=r"not a network on which campus takes USDC; the networks are: eip155:8453 \(Base\)"):
        network_of("eip155:424242")
    assert id_of_legacy("base") == "eip155:8453"
    assert id_of_legacy("nowhere") == "nowhere"
