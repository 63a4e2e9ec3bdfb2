"""A process that writes until it is killed: 10 tasks, and a line for every item that was acknowledged."""

import sys
from collections.abc import Sequence

import anyio
from sqlalchemy import Connection, insert

from campus.storage.databases import Databases
from tests.storage.bank.tables import Account, Tables


def store(connection: Connection, names: Sequence[str]) -> Sequence[str]:
    connection.execute(insert(Account), [{"name": name, "balance": 0, "currency": "EUR"} for name in names])
    return names


async def main(url: str) -> None:
    async with Databases.open(url) as dbs, (await dbs.storage_of("bank", Tables)).batch(store) as put, anyio.create_task_group() as tasks:

        async def write(task: int) -> None:
            number = 0
            while True:
                print(await put(f"{task}-{number}"), flush=True)
                number += 1

        for task in range(10):
            tasks.start_soon(write, task)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
