"""Fixtures of all tests: asyncio, a PostgreSQL server, and a fresh database, SQLite or PostgreSQL, for each test."""

import gc
import json
import os
import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

import asyncpg
import branch_coverage
import hypothesis
import pytest
from jsonschema import Draft202012Validator
from patience import patience
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache
from surroundings import make_own
from workers import fork_workers

from campus.caller import Frame
from campus.storage import alembic_runner, sqlite
from campus.storage.migrations import History
from tests.postgres_server import Postgres, running

REPOSITORY = Path(__file__).parents[1]
LONGEST = (
    *("test_documents.py", "test_worst_requests.py", "test_workers.py", "test_backups.py", "test_browser.py"),
    *(
        "test_clients.py",
        "test_process.py",
        "test_readme.py",
        "test_readiness.py",
        "test_remote_down.py",
        "test_lost_servers.py",
        "test_private_names.py",
    ),
)
GARBAGE = 20_000, 10, 10
"""How many objects a test may make before garbage is looked for: with Python's 700, a thirtieth of the tests' time is that."""
Sent = tuple[str, Any]
"""A statement and its parameters."""


gc.disable()  # what is imported and collected stays


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Import and collect once for all workers."""
    fork_workers(config)


def pytest_configure(config: pytest.Config) -> None:
    branch_coverage.start(config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage after collecting, and then only in what tests make: going over all that was imported takes a third of collecting."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*GARBAGE)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Scale a test's timeout with the machine's load."""
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(patience(float(item.config.getini("timeout")))))
    return (yield)


@pytest.fixture
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(autouse=True, scope="session")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> None:
    make_own(tmp_path_factory.mktemp("home"))


@pytest.fixture(autouse=True, scope="session")
def migrated_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    made: dict[History, Path] = {}
    folder = tmp_path_factory.mktemp("migrated")
    upgrade = sqlite._upgrade

    def copied(path: Path, history: History) -> None:
        if path.exists() or not history.folder.is_relative_to(REPOSITORY):
            upgrade(path, history)
            return
        if history not in made:
            template = folder / f"{len(made)}.db"
            upgrade(template, history)
            made[history] = template
        shutil.copyfile(made[history], path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "_upgrade", copied)
        yield


@pytest.fixture(autouse=True, scope="session")
def migrated_schemas() -> Iterator[None]:
    made: dict[History, Sequence[Sent]] = {}
    upgrade = alembic_runner.upgrade

    def repeated(connection: Connection, history: History) -> None:
        if (
            connection.dialect.name != "postgresql"
            or not history.folder.is_relative_to(REPOSITORY)
            or connection.scalar(text("SELECT to_regclass('alembic_version')")) is not None
        ):
            upgrade(connection, history)
        elif history in made:
            repeat(connection, made[history])
        else:
            with statements_of(connection) as sent:
                upgrade(connection, history)
            made[history] = sent

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alembic_runner, "upgrade", repeated)
        yield


@pytest.fixture(autouse=True, scope="session")
def checked_schemas() -> Iterator[None]:
    sound: set[tuple[type, str]] = set()
    check = Draft202012Validator.check_schema.__func__

    def checked(cls: type, schema: Any, **options: Any) -> None:
        asked = cls, json.dumps([schema, options], sort_keys=True, default=repr)
        if asked not in sound:
            check(cls, schema, **options)
            sound.add(asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Draft202012Validator, "check_schema", classmethod(checked))
        yield


@pytest.fixture(autouse=True, scope="session")
def compiled_statements() -> Iterator[None]:
    kept = LRUCache[Any, Any](5000)

    def kind(dialect: Any) -> tuple[object, ...]:
        return type(dialect), dialect._json_serializer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DefaultDialect, "__hash__", lambda one: hash(kind(one)))
        patch.setattr(DefaultDialect, "__eq__", lambda one, other: isinstance(other, DefaultDialect) and kind(one) == kind(other))
        patch.setattr(Engine, "_compiled_cache", property(lambda engine: kept, lambda engine, its_own: None), raising=False)
        yield


@contextmanager
def statements_of(connection: Connection) -> Iterator[list[Sent]]:
    sent: list[Sent] = []

    def note(_: object, __: object, statement: str, parameters: Any, *___: object) -> None:
        if not statement.lstrip().startswith("SELECT"):
            sent.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    yield sent
    event.remove(connection, "before_cursor_execute", note)


def repeat(connection: Connection, sent: Sequence[Sent]) -> None:
    for with_parameters, group in groupby(sent, lambda one: bool(one[1])):
        if with_parameters:
            for statement, parameters in group:
                connection.exec_driver_sql(statement, parameters)
        else:
            script = ";\n".join(statement for statement, _ in group)
            connection.connection.dbapi_connection.run_async(partial(asyncpg.Connection.execute, query=script))


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
    return postgres.url("postgres")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "storage_url" in metafunc.fixturenames:
        kinds = ["sqlite", "postgresql"] if metafunc.definition.get_closest_marker("both_databases") else ["sqlite"]
        metafunc.parametrize("storage_url", kinds, indirect=True)


@pytest.fixture
def storage_url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        yield f"sqlite:{folder / 'data'}"
        return
    server: Postgres = request.getfixturevalue("postgres")
    name = server.create_database()
    yield server.url(name)
    server.drop_database(name)


# no deadline: coverage and a busy machine make any example slow; from the environment, since workers import tests before options are read
hypothesis.settings.register_profile("quick", deadline=None, max_examples=20)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=200)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(params=["http", "mcp"])
def frame(request: pytest.FixtureRequest) -> Frame:
    frame: Frame = request.param
    return frame
