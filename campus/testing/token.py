"""The dollar of the tests: where it is on the chain, its code (token.vy, compiled to token.hex), and how it is spoken to."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from eth_abi.abi import encode
from eth_utils.crypto import keccak

CHAIN_ID = 8453
NETWORK = f"eip155:{CHAIN_ID}"
ADDRESS = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
"""USD Coin's on Base: a campus under test runs with the configuration of production."""

DOMAIN = {"name": "USD Coin", "version": "2", "chainId": CHAIN_ID, "verifyingContract": ADDRESS}
AUTHORIZATION = ("address", "address", "uint256", "uint256", "uint256", "bytes32")
PARTS = ("uint8", "bytes32", "bytes32")
TRANSFER = "0x" + keccak(text="Transfer(address,address,uint256)").hex()


@cache
def code() -> str:
    """The contract's code as it stands on the chain, in hexadecimal."""
    return files("campus.testing").joinpath("token.hex").read_text().strip()


def call_data(function: str, types: tuple[str, ...], *arguments: Any) -> str:
    """A call of a function, as a transaction carries it."""
    return "0x" + (keccak(text=f"{function}({','.join(types)})")[:4] + encode(types, arguments)).hex()


def authorization(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """An authorization as its function takes it, from its members as they are on the wire."""
    numbers = (int(given[name]) for name in ("value", "validAfter", "validBefore"))
    return (given["from"], given["to"], *numbers, bytes.fromhex(given["nonce"][2:]))


def parts(signature: bytes) -> tuple[int, bytes, bytes]:
    """A signature's v, r and s."""
    return signature[64], signature[:32], signature[32:64]
