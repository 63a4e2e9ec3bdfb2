"""The credits of keys: one balance for each lineage, in millionths of a dollar, which purchases and corrections add to and calls spend.

Whoever changes it by anything but a call saves an event of a key with the same amount in the same transaction; the calls are counted by the
feature `credits`. So each balance is what the events of its lineage sum up to, without what its calls took.
"""

from sqlalchemy import text
from sqlmodel.ext.asyncio.session import AsyncSession

DEPOSIT = text(
    "INSERT INTO credit_accounts (lineage, balance, period, calls) VALUES (:lineage, :amount, '', 0)"
    " ON CONFLICT (lineage) DO UPDATE SET balance = credit_accounts.balance + excluded.balance"
)
BALANCE = text("SELECT balance FROM credit_accounts WHERE lineage = :lineage")
WITHDRAW = text("UPDATE credit_accounts SET balance = balance - :amount WHERE lineage = :lineage")


async def deposit(session: AsyncSession, lineage: str, amount: int) -> None:
    if amount:
        await (await session.connection()).execute(DEPOSIT, {"lineage": lineage, "amount": amount})


async def withdraw(session: AsyncSession, lineage: str, amount: int) -> int:
    """Take the amount, or what there is of it, in a transaction that writes; returns how much was taken."""
    connection = await session.connection()
    taken = min((await connection.execute(BALANCE, {"lineage": lineage})).scalar() or 0, amount)
    if taken:
        await connection.execute(WITHDRAW, {"lineage": lineage, "amount": taken})
    return taken
