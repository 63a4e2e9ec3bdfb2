"""What is said of a payment: by a facilitator before and after the charge, and by the chain. Nobody is asked here."""

from dataclasses import dataclass
from typing import Literal, Protocol

from campus.payments.payment import Payment, Sale

LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a facilitator would settle a payment; where it is not `reachable` it did not say, and `reason` is why."""

    valid: bool
    reason: str = ""
    reachable: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a payment was charged.

    settled: it was, in `transaction`; said by the chain, `block` is the number of its block, and said by a facilitator it is None.
    refused: it was not charged and never will be; only the chain says so, as of `block`. unknown: nobody can tell yet.
    """

    state: Literal["settled", "refused", "unknown"]
    transaction: str | None = None
    reason: str = ""
    block: int | None = None


class Facilitator(Protocol):
    """Who checks payments and submits them to the chain. None of its methods raises for what a facilitator does or fails to do."""

    async def mismatch(self, payment: Payment, sale: Sale) -> str | None:
        """Why the terms that the payment accepts are not those of the sale; None when they are. Asks nobody."""
        ...

    async def verify(self, payment: Payment, sale: Sale) -> Verdict:
        """Whether the payment would be settled; charges nothing."""
        ...

    async def settle(self, payment: Payment, sale: Sale) -> Outcome:
        """Charge the payment: settled or unknown, for what a facilitator says of a failure proves nothing.

        Harmless when repeated: the chain takes a nonce once.
        """
        ...


def one_line(text: object) -> str:
    """What another machine said, as one line that is safe to store, log and repeat."""
    line = " ".join(str(text).split())
    return "".join(letter for letter in line if letter.isprintable())[:LONGEST_REASON]
