"""The networks on which campus takes USDC: the token's contract, its EIP-712 domain, and the name of the network in x402 v1."""

from dataclasses import dataclass

from campus.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Network:
    """One network: `id` is CAIP-2; `name` and `version` are the token's EIP-712 domain; `legacy` is the network's name in x402 v1."""

    id: str
    title: str
    asset: str
    name: str
    legacy: str | None = None
    version: str = "2"

    @property
    def chain_id(self) -> int:
        return int(self.id.removeprefix("eip155:"))


USD_COIN, USDC = "USD Coin", "USDC"

NETWORKS = (
    Network("eip155:8453", "Base", "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", USD_COIN, "base"),
    Network("eip155:84532", "Base Sepolia", "0x036CbD53842c5426634e7929541eC2318f3dCF7e", USDC, "base-sepolia"),
    Network("eip155:1", "Ethereum", "0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48", USD_COIN, "ethereum"),
    Network("eip155:137", "Polygon", "0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359", USD_COIN, "polygon"),
    Network("eip155:42161", "Arbitrum One", "0xaf88d065e77c8cC2239327C5EDb3A432268e5831", USD_COIN),
    Network("eip155:421614", "Arbitrum Sepolia", "0x75faf114eafb1BDbe2F0316DF893fd58CE46AA4d", USD_COIN),
    Network("eip155:43114", "Avalanche", "0xB97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E", USD_COIN, "avalanche"),
    Network("eip155:42220", "Celo", "0xcebA9300f2b948710d2653dD7B07f33A8B32118C", USDC, "celo"),
    Network("eip155:11142220", "Celo Sepolia", "0x01C5C0122039549AD1493B8220cABEdD739BC44E", USDC),
    Network("eip155:143", "Monad", "0x754704Bc059F8C67012fEd69BC8A327a5aafb603", USDC, "monad"),
    Network("eip155:10143", "Monad Testnet", "0x534b2f3A21130d7a60830c2Df862319e593943A3", USDC, "monad-testnet"),
    Network("eip155:1329", "Sei", "0xe15fC38F6D8c56aF07bbCBe3BAf5708A2Bf42392", USDC, "sei"),
    Network("eip155:1328", "Sei Testnet", "0x4fCF1784B31630811181f670Aea7A7bEF803eaED", USDC, "sei-testnet"),
    Network("eip155:50", "XDC", "0xfA2958CB79b0491CC627c1557F441eF849Ca8eb1", USDC),
    Network("eip155:51", "XDC Apothem", "0xb5AB69F7bBada22B28e79C8FFAECe55eF1c771D4", USDC),
    Network("eip155:5042", "Arc", "0x3600000000000000000000000000000000000000", USDC),
    Network("eip155:5042002", "Arc Testnet", "0x3600000000000000000000000000000000000000", USDC),
)

CARDS = {"card": "card, by Stripe", "card-test": "card for tests, by Stripe"}
"""What the ledger has in the place of a network for sales by card."""


def network_of(name: str) -> Network:
    """The network of a CAIP-2 id. Raises ConfigError, which lists all networks, for any other."""
    for network in NETWORKS:
        if network.id == name:
            return network
    there_are = ", ".join(f"{network.id} ({network.title})" for network in NETWORKS)
    raise ConfigError(f"payments.network: {name!r} is not a network on which campus takes USDC; the networks are: {there_are}")


def id_of_legacy(name: str) -> str:
    """The CAIP-2 id of the network with this name in x402 v1; the name itself if it is unknown."""
    return next((network.id for network in NETWORKS if network.legacy == name), name)


def legacy_of(network: str) -> str:
    """The name in x402 v1 of the network with this CAIP-2 id; the id itself if it has none."""
    return next((one.legacy for one in NETWORKS if one.id == network and one.legacy), network)


def with_checksum(address: str) -> str:
    """The address with the capital letters of its checksum (EIP-55): it reveals a mistyped letter, which would lose every payment."""
    from Crypto.Hash import keccak  # a tenth of a second, needed only once at start

    digits = address.removeprefix("0x").lower()
    sums = keccak.new(data=digits.encode("ascii"), digest_bits=256).hexdigest()
    return "0x" + "".join(digit.upper() if int(sums[place], 16) > 7 else digit for place, digit in enumerate(digits))
