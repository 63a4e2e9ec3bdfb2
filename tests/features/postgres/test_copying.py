"""`campus copy`: what a campus stores in SQLite files is served from PostgreSQL afterwards, with the same keys, monitors and capsules."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import pytest
from sqlalchemy import make_url, text

from buildings.cve.building import building as cve
from buildings.recorder import building as recorder
from buildings.recorder.tables import Tables
from campus.storage import in_snapshot, in_transaction
from campus.storage.databases import Databases
from campus.storage.sqlite import open_directory
from campus.testing import TestCampus, open_campus
from tests.commands import command_of
from tests.conftest import Postgres

CAMPUS_TOML = """
[products.recorder]
scope = "recorder"
price = "19"
term = "30 days"

[buildings.gateway]
path = "/"

[buildings.recorder]

[buildings.cve]
sample = true
"""

LOSES_THE_SECOND_CAPSULE = """
CREATE FUNCTION lose() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE object_identity = 'recorder.capsule') THEN
        CREATE RULE lost AS ON INSERT TO recorder.capsule WHERE NEW.number = 1 DO INSTEAD NOTHING;
    END IF;
END $$;
CREATE EVENT TRIGGER losing ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION lose()
"""


@dataclass(frozen=True)
class Begun:
    """A campus that stored something in SQLite files: its campus.toml, a key that was rotated, and its monitor."""

    folder: Path
    key: str
    monitor: dict[str, str]

    def copied_to(self, folder: Path) -> Path:
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return folder / "campus.toml"


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Begun:
    folder = tmp_path_factory.mktemp("begun")
    (folder / "campus.toml").write_text(CAMPUS_TOML)
    return Begun(folder, *anyio.run(begin, f"sqlite:{folder / 'data'}"))


@pytest.fixture
def empty_postgres(postgres: Postgres) -> Iterator[str]:
    name = postgres.create_database()
    yield postgres.url(name)
    postgres.drop_database(name)


async def beat(campus: TestCampus, monitor: dict[str, str], step: int) -> None:
    told = await campus.call("heartbeat", monitor_id=monitor["monitor_id"], secret=monitor["secret"], capsule={"step": step})
    assert told.data["capsule_stored"]


async def begin(storage: str) -> tuple[str, dict[str, str]]:
    """A key that was rotated, its monitor with two capsules; and numbers of news that are gone."""
    async with open_campus(storage=storage, recorder=recorder, cve=cve) as campus:
        first, _ = await campus.service.keys.issue("recorder")
        _, key = await campus.service.keys.rotate(first.id)
        registered = await campus.call("register_monitor", key=key, name="nightly", alert_webhook="https://hooks.slack.com/x")
        await beat(campus, registered.data, 1)
        await beat(campus, registered.data, 2)
    with closing(sqlite3.connect(f"{storage.removeprefix('sqlite:')}/cve.db")) as file, file:
        file.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('watch_news', 41)")
    return key, registered.data


async def go_on(storage: str, key: str, monitor: dict[str, str]) -> None:
    async with open_campus(storage=storage, recorder=recorder, cve=cve) as campus:
        fleet = (await campus.call("fleet_status", key=key)).data["monitors"]
        assert [(one["name"], one["beats"], json.loads(one["capsule"]["text"])) for one in fleet] == [("nightly", 2, {"step": 2})]
        await beat(campus, monitor, 3)
        await campus.service.keys.issue("recorder")
        number = text("SELECT nextval(pg_get_serial_sequence('watch_news', 'number'))")
        assert await in_transaction(campus.service.sites["cve"].storage, lambda connection: connection.scalar(number)) == 42


async def rows_of_recorder(storage: str) -> int:
    rows = text("SELECT (SELECT count(*) FROM monitor) + (SELECT count(*) FROM capsule)")
    async with Databases.open(storage) as databases:
        recorded = await databases.storage_of("recorder", Tables)
        return await in_snapshot(recorded, lambda connection: connection.scalar(rows) or 0)


def test_a_campus_goes_on_in_postgresql_where_it_was_in_sqlite(
    begun: Begun, tmp_path: Path, empty_postgres: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = ("copy", empty_postgres, "--config", str(begun.copied_to(tmp_path)))
    run = command_of(capsys)
    ran = run(*copy, "--json")
    assert ran.code == 0, ran.err
    rows = {(one["database"], one["table"]): one["rows"] for one in json.loads(ran.out)}
    assert (rows["campus", "keys"], rows["recorder", "monitor"], rows["recorder", "capsule"]) == (2, 1, 2)
    anyio.run(go_on, empty_postgres, begun.key, begun.monitor)
    again = run(*copy)
    assert again.code == 2
    assert "has tables already: name an empty database" in again.err


async def is_empty(storage: str) -> bool:
    async with Databases.open(storage) as databases:
        return await databases.is_empty("campus")


def test_a_campus_that_is_served_or_has_a_database_of_another_version_is_not_copied_even_in_part(
    begun: Begun, tmp_path: Path, empty_postgres: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = partial(command_of(capsys), "copy", empty_postgres, "--config", str(begun.copied_to(tmp_path)))
    with open_directory(tmp_path / "data", exclusive=True):
        served = run()
    with closing(sqlite3.connect(tmp_path / "data" / "recorder.db")) as file, file:
        file.execute("UPDATE alembic_version SET version_num = '9999', usable_from = '9999'")
    newer = run()
    assert (served.code, newer.code) == (2, 2)
    assert "another process serves the data in" in served.err
    assert "recorder.db is at step 9999" in newer.err
    assert anyio.run(is_empty, empty_postgres)


def test_what_is_in_postgresql_already_is_not_copied(tmp_path: Path, empty_postgres: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "campus.toml"
    config.write_text(f'{CAMPUS_TOML}\n[storage]\nurl = "{empty_postgres}"\n')
    ran = command_of(capsys)("copy", empty_postgres, "--config", str(config))
    assert ran.code == 2
    assert "names a PostgreSQL database already; copy it with pg_dump and pg_restore" in ran.err
    assert anyio.run(is_empty, empty_postgres)


def test_a_table_that_does_not_arrive_complete_is_refused_and_nothing_of_its_database_is_copied(
    begun: Begun, tmp_path: Path, postgres: Postgres, empty_postgres: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = begun.copied_to(tmp_path)
    postgres.run("psql", "-d", str(make_url(empty_postgres).database), "-c", LOSES_THE_SECOND_CAPSULE)
    ran = command_of(capsys)("copy", empty_postgres, "--config", str(config))
    assert ran.code == 2
    assert "of 2 rows of capsule 1 arrived; nothing of its database was copied" in ran.err
    assert anyio.run(rows_of_recorder, empty_postgres) == 0


def test_only_an_address_of_postgresql_is_copied_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "campus.toml"
    config.write_text(CAMPUS_TOML)
    ran = command_of(capsys)("copy", "sqlite:other", "--config", str(config))
    assert ran.code == 2
    assert "written as postgresql://user@host/database" in ran.err
    assert list(tmp_path.iterdir()) == [config]
