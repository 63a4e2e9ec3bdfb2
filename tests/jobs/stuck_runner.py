"""A process whose job never ends: it says when it began, and waits to be killed."""

import sys
from datetime import UTC, datetime, timedelta

import anyio

from campus.jobs import Scheduler, Task
from campus.storage.databases import Databases
from campus.storage.tables import CoreTables


async def job() -> None:
    print("started", flush=True)
    await anyio.sleep_forever()


async def main(url: str) -> None:
    async with Databases.open(url) as databases:
        tasks = [Task("job", job, every=timedelta(minutes=10))]
        await Scheduler(tasks, await databases.storage_of("campus", CoreTables), now=lambda: datetime.now(UTC), holder="stuck").run()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
