"""What an operator learns of payments: those that were looked for, and where the wallet's income and the ledger differ. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from campus.pricing import Price

LISTED = "`campus ledger reconcile` lists them"


@dataclass(frozen=True, slots=True)
class Resolution:
    """A payment that was looked for: its state before and after, and why. `transaction` is None unless it was charged."""

    payment_id: str
    before: str
    after: str
    transaction: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Missing:
    """A payment that counts as charged, and that the chain does not show."""

    payment_id: str
    transaction: str | None
    payer: str
    amount: int
    reason: str


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """A transfer to the wallet that no payment of this ledger claims. `payment_id` is the payment that it was signed for, if known.

    `at` is None if the transfer was not looked into.
    """

    transaction: str
    payer: str
    amount: int
    at: datetime | None
    payment_id: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What an audit found."""

    missing: Sequence[Missing] = ()
    unclaimed: Sequence[Unclaimed] = ()

    @property
    def sentences(self) -> list[str]:
        """A sentence for the operator for each kind of finding, with what to do."""
        found = []
        if self.missing:
            total = Price(sum(one.amount for one in self.missing))
            found.append(f"payments count as charged and are not on the chain ({len(self.missing)}, ${total}); {LISTED}")
        if self.unclaimed:
            total = Price(sum(one.amount for one in self.unclaimed))
            found.append(
                f"transfers reached the wallet that no payment of this ledger claims ({len(self.unclaimed)}, ${total}); {LISTED}. "
                "Let one database alone take payments to a wallet, and name your own wallets in own_wallets"
            )
        return found


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The payments in doubt that were looked for on the chain, and what the audit found after that."""

    resolutions: Sequence[Resolution]
    findings: Findings
