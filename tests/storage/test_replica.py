"""A read replica, a real standby: it answers what may lag while it is near, and the primary does otherwise."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from sqlalchemy import text

from campus.errors import StorageError
from campus.storage import Storage, postgres, replicas
from campus.storage.database import try_write
from campus.storage.databases import Databases
from tests.conftest import Postgres, running
from tests.patience import patience
from tests.postgres_server import SERVER, dying_with_parent, unprivileged, wait_until_ready
from tests.storage.bank.tables import Account, Tables

pytestmark = pytest.mark.anyio
REPLICATED = {**SERVER, "fsync": "on", "full_page_writes": "on", "wal_level": "replica", "max_wal_senders": "4"}


@contextmanager
def standby_of(primary: Postgres, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a standby with its socket in this folder, which the server's user owns."""
    copy = [primary.programs / "pg_basebackup", "-h", primary.sockets, "-U", "postgres", "-D", folder / "db", "-R", "-c", "fast", "-N"]
    subprocess.run(copy, check=True, capture_output=True, **unprivileged())
    words = [word for key, value in REPLICATED.items() for word in ("-c", f"{key}={value}")]
    command = [primary.programs / "postgres", "-D", folder / "db", "-k", folder, *words]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=dying_with_parent(), **unprivileged())
    try:
        wait_until_ready([primary.programs / "pg_isready", "-h", folder], server, folder / "log")
        yield server
    finally:
        server.kill()
        server.wait()


async def asked(bank: Storage, *, may_lag: bool = True) -> tuple[bool, int]:
    """Whether the standby answers, and how many accounts it sees."""
    async with bank.read(may_lag=may_lag) as session:
        connection = await session.connection()
        return tuple((await connection.execute(text("SELECT pg_is_in_recovery(), (SELECT count(*) FROM account)"))).one())


async def answers(bank: Storage, expected: tuple[bool, int]) -> None:
    """Wait until a read that may lag is answered so."""
    with anyio.fail_after(patience(30)):
        while await asked(bank) != expected:  # noqa: ASYNC110
            await anyio.sleep(0.05)


async def test_a_replica_answers_what_may_lag_while_it_is_near_and_the_primary_does_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "WATCH_SECONDS", 0.2)
    monkeypatch.setattr(replicas, "MOST_LAG", patience(2))
    with TemporaryDirectory(prefix="campus-pg-", dir="/tmp") as folder, running(Path(folder), REPLICATED) as primary:
        place = primary.sockets / "standby"
        place.mkdir()
        if identity := unprivileged():
            os.chown(place, identity["user"], identity["group"])
        url, replica = primary.url("postgres"), f"postgresql://postgres@/postgres?host={place}"

        def replay(what: str) -> None:
            command = [primary.programs / "psql", "-h", place, "-U", "postgres", "-c", f"SELECT pg_wal_replay_{what}()", "postgres"]
            subprocess.run(command, check=True, capture_output=True)

        async with Databases.open(url, replica=replica) as databases:
            bank = await databases.storage_of("bank", Tables)
            with standby_of(primary, place) as standby:
                await answers(bank, (True, 0))
                assert await databases.findings() == []
                assert await asked(bank, may_lag=False) == (False, 0)
                with pytest.raises(StorageError, match=r"was opened by read\(\)"):
                    async with bank.read(may_lag=True) as session:
                        session.add(Account(name="a"))
                replay("pause")
                async with bank.write() as session:
                    session.add(Account(name="a"))
                assert await asked(bank, may_lag=False) == (False, 1)
                await answers(bank, (False, 1))  # once the replica is too far behind
                [late] = await databases.findings()
                assert "s behind: it is not read until it has caught up" in late
                replay("resume")
                await answers(bank, (True, 1))
                standby.send_signal(signal.SIGQUIT)
                standby.wait()
                await anyio.sleep(0.1)  # until its connections are known to be closed
                assert await asked(bank) == (False, 1)
            [away] = await databases.findings()
            assert "the replica postgres at" in away
            assert away.endswith("it is not read")
        async with Databases.open(url, replica=url) as databases:
            bank = await databases.storage_of("bank", Tables)
            await try_write(bank)
            [wrong] = await databases.findings()
            assert "is not a standby of [storage] url" in wrong
            await anyio.sleep(1)
            assert await asked(bank) == (False, 1)


async def test_a_replica_is_one_standby_of_postgresql(tmp_path: Path) -> None:
    for url, replica, sentence in (
        ("sqlite:data", "postgresql://b/campus", "is a standby of PostgreSQL"),
        ("postgresql://a/campus", "sqlite:data", "is a standby of PostgreSQL"),
        ("postgresql://a/campus", "postgresql://b,c/campus", "several hosts; name one standby"),
        ("postgresql://a/campus", "postgresql://u:p@b/campus", r"\[storage\] replica holds a password"),
    ):
        with pytest.raises(StorageError, match=sentence):
            async with Databases.open(url, folder=tmp_path, replica=replica):
                pass
