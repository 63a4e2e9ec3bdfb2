"""A process that migrates the bank at a signal, and then opens an account."""

import sys

import anyio

import campus.storage.alembic_runner  # loaded before the signal, so that processes meet
from campus.storage.databases import Databases
from tests.storage.bank.tables import Account, Tables


async def main(url: str, name: str) -> None:
    async with Databases.open(url) as databases:
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        bank = await databases.storage_of("bank", Tables)
        async with bank.write() as session:
            session.add(Account(name=name))


if __name__ == "__main__":
    assert campus.storage.alembic_runner
    anyio.run(main, *sys.argv[1:])
