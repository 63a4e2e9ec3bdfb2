"""A process that migrates the bank at a signal, and then opens an account."""

import sys

import anyio

import campus.storage.migrations  # loaded before the signal, so that processes meet
from campus.storage import Vault
from tests.storage.bank.tables import Account, Tables


async def main(url: str, name: str) -> None:
    async with Vault.open(url) as vault:
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        bank = await vault.room("bank", Tables)
        async with bank.write() as session:
            session.add(Account(name=name))


if __name__ == "__main__":
    assert campus.storage.migrations
    anyio.run(main, *sys.argv[1:])
