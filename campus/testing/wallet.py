"""A wallet of a test: an address, its key, and the signatures of EIP-3009."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eth_account import Account

from campus.testing.token import DOMAIN

TRANSFER_FIELDS = [
    {"name": "from", "type": "address"},
    {"name": "to", "type": "address"},
    {"name": "value", "type": "uint256"},
    {"name": "validAfter", "type": "uint256"},
    {"name": "validBefore", "type": "uint256"},
    {"name": "nonce", "type": "bytes32"},
]
CANCEL_FIELDS = [{"name": "authorizer", "type": "address"}, {"name": "nonce", "type": "bytes32"}]


@dataclass(frozen=True, slots=True)
class Wallet:
    """`address` is checksummed; `key` is hexadecimal."""

    address: str
    key: str = field(repr=False)

    def sign_transfer(self, authorization: Mapping[str, Any], **domain: Any) -> str:
        """The signature of an authorization, its members as they are on the wire; `domain` is laid over the token's own."""
        message = {each["name"]: authorization[each["name"]] for each in TRANSFER_FIELDS}
        message |= {name: int(message[name]) for name in ("value", "validAfter", "validBefore")}
        return self._sign("TransferWithAuthorization", TRANSFER_FIELDS, message, domain)

    def sign_cancel(self, nonce: str) -> str:
        """The signature of the withdrawal of an authorization by its nonce."""
        return self._sign("CancelAuthorization", CANCEL_FIELDS, {"authorizer": self.address, "nonce": nonce}, {})

    def _sign(self, kind: str, fields: list[dict[str, str]], message: Mapping[str, Any], domain: Mapping[str, Any]) -> str:
        signed = Account.sign_typed_data(self.key, {**DOMAIN, **domain}, {kind: fields}, dict(message))
        return "0x" + bytes(signed.signature).hex()


def new_wallet() -> Wallet:
    """A wallet that nobody had before; it holds nothing."""
    account = Account.create()
    return Wallet(account.address, "0x" + bytes(account.key).hex())
