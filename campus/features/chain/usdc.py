"""The test token, in place of USDC: its address and code (usdc.vy, compiled to usdc.hex), how to call it, and wallets that sign for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from eth_abi.abi import encode
from eth_account import Account
from eth_utils.crypto import keccak

CHAIN_ID = 8453
NETWORK = f"eip155:{CHAIN_ID}"
ADDRESS = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
"""The address of USD Coin on Base, so that a campus under test has the configuration of production."""

DOMAIN = {"name": "USD Coin", "version": "2", "chainId": CHAIN_ID, "verifyingContract": ADDRESS}
AUTHORIZATION = ("address", "address", "uint256", "uint256", "uint256", "bytes32")
PARTS = ("uint8", "bytes32", "bytes32")
TRANSFER = "0x" + keccak(text="Transfer(address,address,uint256)").hex()
TRANSFER_FIELDS = [
    {"name": "from", "type": "address"},
    {"name": "to", "type": "address"},
    {"name": "value", "type": "uint256"},
    {"name": "validAfter", "type": "uint256"},
    {"name": "validBefore", "type": "uint256"},
    {"name": "nonce", "type": "bytes32"},
]
CANCEL_FIELDS = [{"name": "authorizer", "type": "address"}, {"name": "nonce", "type": "bytes32"}]


@cache
def code(contract: str = "usdc") -> str:
    return files("campus.features.chain").joinpath(f"{contract}.hex").read_text().strip()


def call_data(function: str, types: tuple[str, ...], *arguments: Any) -> str:
    """The data of a transaction that calls a function."""
    return "0x" + (keccak(text=f"{function}({','.join(types)})")[:4] + encode(types, arguments)).hex()


def authorization(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments of the token's function, from an authorization's members on the wire."""
    numbers = (int(given[name]) for name in ("value", "validAfter", "validBefore"))
    return (given["from"], given["to"], *numbers, bytes.fromhex(given["nonce"][2:]))


def parts(signature: bytes) -> tuple[int, bytes, bytes]:
    return signature[64], signature[:32], signature[32:64]


@dataclass(frozen=True, slots=True)
class Wallet:
    """A wallet: `address` with its checksum, `key` in hexadecimal."""

    address: str
    key: str = field(repr=False)

    def sign_transfer(self, authorization: Mapping[str, Any], **domain: Any) -> str:
        """Sign an authorization, given by its members on the wire; `domain` overrides members of the token's domain."""
        message = {each["name"]: authorization[each["name"]] for each in TRANSFER_FIELDS}
        message |= {name: int(message[name]) for name in ("value", "validAfter", "validBefore")}
        return self._sign("TransferWithAuthorization", TRANSFER_FIELDS, message, domain)

    def sign_cancel(self, nonce: str) -> str:
        """Sign the cancellation of an authorization, given by its nonce."""
        return self._sign("CancelAuthorization", CANCEL_FIELDS, {"authorizer": self.address, "nonce": nonce}, {})

    def _sign(self, kind: str, fields: list[dict[str, str]], message: Mapping[str, Any], domain: Mapping[str, Any]) -> str:
        signed = Account.sign_typed_data(self.key, {**DOMAIN, **domain}, {kind: fields}, dict(message))
        return "0x" + bytes(signed.signature).hex()


def new_wallet() -> Wallet:
    """A new, empty wallet."""
    account = Account.create()
    return Wallet(account.address, "0x" + bytes(account.key).hex())
