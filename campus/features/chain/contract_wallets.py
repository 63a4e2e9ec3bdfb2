"""Contract wallets for tests (wallet.vy): their owners' signatures as they send them, and how a test makes them answer."""

from dataclasses import dataclass
from typing import Any, Literal

from eth_abi.abi import encode
from eth_account import Account
from x402.mechanisms.evm.constants import ERC6492_MAGIC_VALUE
from x402.mechanisms.evm.signers import EthAccountSigner

from campus.features.chain.usdc import Wallet, call_data

FACTORY = "0x" + "5afe" * 10
"""The address of the code that all of them share, which makes them too."""
Answer = Literal["checks", "accepts", "refuses", "reverts", "burns gas"]
"""How a wallet answers whether its owner has signed; it checks at first. One that burns gas takes all that it is given."""
ANSWERS: tuple[Answer, ...] = ("checks", "accepts", "refuses", "reverts", "burns gas")
FIRST_OWNER = bytes(32)


@dataclass(frozen=True, slots=True)
class ContractWallet(Wallet):
    """A wallet that is a contract: `address` is its own, `key` its owner's.

    `is_short` if it sends the owner's signature alone, as long as an account's; others name the owner before it. One that is not
    `is_deployed` sends how it is made (EIP-6492), until it is.
    """

    owner: str = ""
    is_short: bool = False
    is_deployed: bool = True

    def wrapped(self, signature: bytes) -> bytes:
        """The owner's signature as the wallet sends it."""
        signed = signature if self.is_short else FIRST_OWNER + signature
        if self.is_deployed:
            return signed
        return encode(["address", "bytes", "bytes"], [FACTORY, bytes.fromhex(created(self.owner)[2:]), signed]) + ERC6492_MAGIC_VALUE

    def _sign(self, *message: Any) -> str:
        return "0x" + self.wrapped(bytes.fromhex(Wallet._sign(self, *message)[2:])).hex()


class ContractSigner(EthAccountSigner):
    """The wallet as x402's client signs with it."""

    def __init__(self, wallet: ContractWallet) -> None:
        super().__init__(Account.from_key(wallet.key))
        self._wallet = wallet

    @property
    def address(self) -> str:
        return self._wallet.address

    def sign_typed_data(self, *message: Any, **named: Any) -> bytes:
        return self._wallet.wrapped(super().sign_typed_data(*message, **named))


def created(owner: str) -> str:
    """The data of the call that makes an owner's wallet."""
    return call_data("create", ("address",), owner)
