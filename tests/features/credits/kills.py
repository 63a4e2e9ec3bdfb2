"""Killing a campus with SIGKILL in the midst of calls that a key pays for, until each is answered, and looking what they cost.

Each call has an Idempotency-Key of its own and is sent until it is answered, by whichever process. So in the end each is charged once.
"""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_urlsafe

import anyio
import httpx
from patience import patience
from serving import Served, serving
from sqlalchemy import text

from campus.config import config_of
from campus.core import utc_now
from campus.features.credits.accounts import Account, Accounts
from campus.features.credits.tables import Tables
from campus.storage.databases import Databases
from campus.storage.tables import CoreTables
from tests import patient

CONFIG = """
[storage]
url = "{storage}"
[products.slow]
scope = "slow"
price = "5"
term = "30 days"
credits = "10"
[buildings.slow]
server = "features.payments.slow_tool:mcp"
tools = {{ "*" = {{ price = "0.02" }} }}
"""
PRICE, SOLD = 20_000, 10_000_000
CALLERS = 4


@dataclass
class Scene:
    """A campus on one database, which is killed, and what its callers wait for: numbers, each with an Idempotency-Key."""

    folder: Path
    storage: str
    token: str = ""
    waiting: deque[tuple[int, str]] = field(default_factory=deque)
    answered: set[int] = field(default_factory=set)

    @contextmanager
    def served(self) -> Iterator[Served]:
        environ = {"PYTHONPATH": str(Path(__file__).parents[2]), "SLOW_TOOL_FOLDER": str(self.folder)}
        with serving(self.folder, CONFIG.format(storage=self.storage), environ=environ) as campus:
            self.token = self.token or campus.key("slow")
            yield campus

    def kill_while_tools_run(self) -> None:
        """Kill it when every caller's tool stands still."""
        (self.folder / "hold").touch()
        with self.served() as campus:
            callers = self.call(campus)
            until(lambda: self.account().held >= CALLERS * PRICE)
            self.kill(campus, callers)
        (self.folder / "hold").unlink()

    def kill_at_random(self, answers: int) -> None:
        """Kill it after so many answers, wherever the other calls are."""
        with self.served() as campus:
            wanted = len(self.answered) + answers
            callers = self.call(campus)
            until(lambda: len(self.answered) >= wanted)
            self.kill(campus, callers)

    def kill(self, campus: Served, callers: Sequence[threading.Thread]) -> None:
        os.kill(campus.process.pid, signal.SIGKILL)
        campus.process.wait()
        for caller in callers:
            caller.join(patience(30))
        assert self.account().is_right, "whatever the process left behind"

    def finish(self) -> Account:
        """Have all calls answered; the account after that."""
        with self.served() as campus:
            for caller in self.call(campus):
                caller.join(patience(90))
            until(lambda: self.account().held == 0)
            assert campus.command("audit").returncode == 0
        return self.account()

    def call(self, campus: Served) -> Sequence[threading.Thread]:
        callers = [threading.Thread(target=self._call, args=(campus,), daemon=True) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        return callers

    def _call(self, campus: Served) -> None:
        while self.waiting:
            number, secret = self.waiting.popleft()
            headers = {"Authorization": f"Bearer {self.token}", "Idempotency-Key": secret}
            try:
                answer = patient.get(f"{campus.url}/v1/slow/count?number={number}", headers=headers, timeout=patience(60))
            except httpx.TransportError:  # it was killed
                self.waiting.append((number, secret))
                return
            if answer.status_code == 200:
                assert answer.json() == {"number": number}
                self.answered.add(number)
                continue
            assert answer.json()["code"] == "call_in_flight", answer.text
            self.waiting.append((number, secret))
            time.sleep(0.2)

    def ask(self, count: int) -> None:
        self.waiting.extend((number, token_urlsafe(24)) for number in range(count))

    def account(self) -> Account:
        async def read() -> Account:
            config = config_of({}, self.folder / "campus.toml", {})
            async with Databases.open(self.storage) as databases:
                storage = await databases.storage_of("campus", CoreTables)
                await databases.storage_of("campus.credits", Tables)
                (account,) = await Accounts(storage, config.meters, now=utc_now).all()
            return account

        return anyio.run(read)

    def lapse(self) -> None:
        """End the leases of processes that were killed, which others wait for."""

        async def end() -> None:
            async with Databases.open(self.storage) as databases:
                storage = await databases.storage_of("campus", CoreTables)
                async with storage.write() as session:
                    await (await session.connection()).execute(text("UPDATE credits_holds SET lease_until = 0"))

        anyio.run(end)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patience(60)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
