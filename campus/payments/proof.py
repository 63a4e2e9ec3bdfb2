"""What proves on the chain that a payment was made, and that it never will be. Pure: it reads logs that others fetched.

A token (EIP-3009) marks a nonce as used with `AuthorizationUsed(authorizer, nonce)`, and moves the money with the very next log that it
writes, `Transfer(from, to, value)`. Both must be there, in one transaction that succeeded, the second right behind the first. The first
alone proves nothing: its payer can spend the nonce on a transfer to himself. Nor do the two anywhere in one transaction: several
authorizations can share it, and one transfer must not prove two payments. A nonce is taken once, by a transfer or by a cancellation.

That a payment was not made is proved by time alone: its authorization is over, both by the chain's clock and by this machine's, and the
chain, asked for everything, has no such transfer. A cancellation or another transfer under the nonce is the reason then, and frees
nothing earlier: a node that shows one falsely must not part a payer from what he paid for.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from campus.payments.outcome import Outcome

USED = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
CANCELED = "0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81"
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
"""Keccak-256 of the events' signatures; a test computes them."""
STATE = "0xe94a0102"
"""The first four bytes of Keccak-256 of `authorizationState(address,bytes32)`: whether a nonce is taken; a test computes it."""
CHAIN_MARGIN_SECONDS = 30
"""How far the chain's clock must be past an authorization's end before its absence counts: nodes behind one address differ."""
OWN_MARGIN_SECONDS = 60
"""The same for this machine's clock, which no node can set: machines whose time is kept differ by less."""
TRANSACTION = WORD = re.compile("0x[0-9a-f]{64}")
"""32 bytes: a transaction's hash, and a number in the data of an event."""


def _number(value: Any) -> int:
    if isinstance(value, str):
        return int(value, 16)
    if type(value) is not int:  # pydantic takes a ValueError for an answer that cannot be read, and nothing else
        raise ValueError("neither a number nor its hexadecimal digits")
    return value


Quantity = Annotated[int, BeforeValidator(_number)]
Hex = Annotated[str, AfterValidator(str.lower)]


class Log(BaseModel):
    """One event, as a node tells it."""

    address: Hex
    topics: Sequence[Hex]
    data: Hex
    index: Quantity = Field(alias="logIndex")
    transaction: Hex = Field(alias="transactionHash")
    block: Quantity = Field(alias="blockNumber")
    removed: bool = False


class Receipt(BaseModel):
    """What a transaction did; `status` is 1 where it succeeded."""

    status: Quantity
    logs: Sequence[Log]
    block: Quantity = Field(alias="blockNumber")


class Block(BaseModel):
    """A block's number and its time, in Unix seconds."""

    number: Quantity
    timestamp: Quantity


@dataclass(frozen=True, slots=True)
class Transfer:
    """The transfer that a payment authorizes; all in lower-case hex but the amount and the last moment, in Unix seconds."""

    asset: str
    payer: str
    pay_to: str
    amount: int
    nonce: str
    valid_before: int


def state_question(transfer: Transfer) -> dict[str, Any]:
    """What to ask the token: whether the nonce is taken."""
    return {"to": transfer.asset, "data": STATE + word(transfer.payer)[2:] + transfer.nonce[2:]}


def question(transfer: Transfer) -> dict[str, Any]:
    """What to ask a node for: every log that says that the nonce was taken."""
    return {"address": transfer.asset, "topics": [[USED, CANCELED], word(transfer.payer), transfer.nonce]}


def takes(log: Log, transfer: Transfer) -> bool:
    """Whether the log says that the transfer's nonce was taken; what a node answers is not always what it was asked."""
    about = [word(transfer.payer), transfer.nonce]
    return not log.removed and log.address == transfer.asset and list(log.topics) in ([USED, *about], [CANCELED, *about])


def judge(taken: Log, receipt: Receipt, transfer: Transfer) -> Outcome:
    """Whether the transaction that took the nonce was the payment; `refused` where it was not, which counts once time is over."""
    if receipt.status != 1:  # one that failed has no events: this node is not to be believed
        return Outcome("unknown", reason=f"the node shows events of the transaction {taken.transaction} and says that it failed")
    if taken.topics[0] == CANCELED:
        return Outcome("refused", reason="its payer cancelled the authorization on the chain")
    if not proves(receipt, transfer):
        return Outcome("refused", reason=f"its nonce was spent on another transfer, in the transaction {taken.transaction}")
    return Outcome("settled", taken.transaction, "found on the chain", receipt.block)


def is_over(transfer: Transfer, *, chain: int, own: int) -> bool:
    """Whether the authorization's time is over by both clocks, in Unix seconds, each with its margin."""
    return chain > transfer.valid_before + CHAIN_MARGIN_SECONDS and own > transfer.valid_before + OWN_MARGIN_SECONDS


def proves(receipt: Receipt, transfer: Transfer) -> bool:
    """Whether the transaction succeeded and took the nonce for exactly this transfer."""
    logs = sorted((log for log in receipt.logs if log.address == transfer.asset and not log.removed), key=lambda log: log.index)
    wanted = [TRANSFER, word(transfer.payer), word(transfer.pay_to)]
    used = [USED, word(transfer.payer), transfer.nonce]
    return receipt.status == 1 and any(
        list(taken.topics) == used and list(moved.topics) == wanted and moved.data == f"0x{transfer.amount:064x}"
        for taken, moved in pairwise(logs)
    )


def nonce_of(receipt: Receipt, asset: str, *, payer: str, pay_to: str, amount: int) -> str | None:
    """The nonce of the authorization by which a transaction moved this; None where none did."""
    logs = sorted((log for log in receipt.logs if log.address == asset and not log.removed), key=lambda log: log.index)
    wanted = [TRANSFER, word(payer), word(pay_to)]
    for taken, moved in pairwise(logs):
        is_it = list(moved.topics) == wanted and amount_of(moved) == amount
        if is_it and list(taken.topics[:2]) == [USED, word(payer)] and len(taken.topics) == 3:
            return taken.topics[2]
    return None


def amount_of(moved: Log) -> int | None:
    """The amount of a token's Transfer event; None where its data is no number."""
    return int(moved.data, 16) if WORD.fullmatch(moved.data) else None


def income_question(asset: str, pay_to: str) -> dict[str, Any]:
    """What to ask a node for: every transfer of the token to an address."""
    return {"address": asset, "topics": [TRANSFER, None, word(pay_to)]}


def word(address: str) -> str:
    """An address as a log's topic: 32 bytes."""
    return "0x" + address.removeprefix("0x").rjust(64, "0")
