"""A lost database, tables without their migration, a full disk: what an operator sees."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from patience import patience
from serving import command, free_port, serving, write_config

from tests.conftest import Postgres
from tests.forkserver import CAMPUS, shared

SHOP = """
openapi = "cve"
[storage]
url = "{storage}"
[products.cve]
scope = "cve"
price = "19"
term = "30 days"
[buildings.cve]
sample = true
kev_url = "file:///nowhere"
osv_ecosystems = []
kev_mirror_url = "file:///nowhere"
epss_url = "file:///nowhere"
nvd_url = "file:///nowhere"
"""
TABLES = '''
from fastmcp import FastMCP
from sqlmodel import Field, SQLModel
from campus import Building, Job
from campus.storage import registry

class Tables(SQLModel, registry=registry()):
    """The tables."""

class Tide(Tables, table=True):
    id: int = Field(primary_key=True)
    height: float | None = None

mcp = FastMCP("Tides")

@mcp.tool(annotations={"readOnlyHint": True})
def tide() -> str:
    "The tide."
    return "high"

async def measure(site) -> None:
    """Do nothing."""

building = Building(mcp, tables=Tables, jobs=[Job(measure, daily_at="03:00")])
'''
STEP = """
import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table("tide", sa.Column("id", sa.Integer(), nullable=False), sa.PrimaryKeyConstraint("id", name="pk_tide"))
"""
SECOND_STEP = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("tide", sa.Column("height", sa.Float(), nullable=True))
"""


def config_of(folder: Path, storage_url: str) -> Path:
    return write_config(folder, SHOP.format(storage=storage_url), port=free_port())


def refused(config: Path, *words: str, environ: dict[str, str] | None = None) -> str:
    answer = command(*words, "--config", str(config), environ=environ)
    assert answer.returncode == 2, answer
    sentence = answer.stderr.splitlines()[-1]
    assert sentence.startswith("campus: "), answer.stderr
    assert "Traceback" not in answer.stderr
    return sentence


@pytest.fixture
def tides(tmp_path: Path) -> Path:
    """An installed building whose tables have a column that its step does not make: its folder of steps, in a folder for PYTHONPATH."""
    steps = tmp_path / "site" / "drifting_tides" / "migrations"
    steps.mkdir(parents=True)
    (steps.parent / "__init__.py").write_text(TABLES)
    (steps / "0001_first.py").write_text(STEP)
    (info := tmp_path / "site" / "drifting_tides-1.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: drifting-tides\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[campus.buildings]\ntides = drifting_tides:building\n")
    return steps


DRIFTING = '[storage]\nurl = "{storage}"\n[buildings.tides]\n'


def tides_of(folder: Path, storage_url: str) -> Path:
    return write_config(folder, DRIFTING.format(storage=storage_url), port=free_port())


def test_a_column_that_no_migration_makes_stops_the_start(tmp_path: Path, tides: Path) -> None:
    sentence = refused(tides_of(tmp_path, "sqlite:data"), "serve", environ={"PYTHONPATH": str(tides.parents[1])})
    assert "the table tide has no column height" in sentence
    assert 'campus migration tides "' in sentence


def test_only_a_server_migrates_a_database_and_a_backup_is_of_any_version(tmp_path: Path, tides: Path) -> None:
    config, file, backup = tides_of(tmp_path, "sqlite:data"), tmp_path / "data" / "tides.db", tmp_path / "backup.zip"
    environ = {"PYTHONPATH": str(tides.parents[1])}

    def done(*words: str, config: Path = config) -> str:
        ended = command(*words, "--config", str(config), environ=environ)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    done("audit")
    (tides / "0002_heights.py").write_text(SECOND_STEP)
    for words in (["check"], ["audit"], ["run", "tides.measure"]):
        sentence = refused(config, *words, environ=environ)
        assert f"{file} is at step 0001, and the installed version of tides needs step 0002: restart the server" in sentence
    done("backup", str(backup))
    assert version_of(file) == "0001"
    with serving(tmp_path, DRIFTING.format(storage="sqlite:data"), environ=environ):
        assert version_of(file) == "0002"
    assert done("restore", str(backup), config=tides_of(tmp_path, "sqlite:restored")) == "all is well\n"
    assert version_of(tmp_path / "restored" / "tides.db") == "0002"


def test_a_backup_of_nothing_is_refused(tmp_path: Path) -> None:
    sentence = refused(config_of(tmp_path, "sqlite:data"), "backup", str(tmp_path / "backup.zip"))
    assert f"there is no database in {tmp_path / 'data'}" in sentence
    assert not (tmp_path / "backup.zip").exists()


def version_of(file: Path) -> str:
    with closing(sqlite3.connect(file)) as database:
        return str(database.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def test_a_lost_core_database_beside_a_full_one_is_not_taken_for_new(tmp_path: Path) -> None:
    config = config_of(tmp_path, "sqlite:data")
    assert command("audit", "--config", str(config)).returncode == 0
    shutil.rmtree(keys := tmp_path / "kept", ignore_errors=True)
    keys.mkdir()
    for file in (tmp_path / "data").glob("campus.db*"):
        file.rename(keys / file.name)
    for words in (["serve"], ["key", "list"], ["check"]):
        sentence = refused(config, *words)
        assert f"{tmp_path / 'data' / 'campus.db'} is missing" in sentence
        assert "cve" in sentence
        assert "restore" in sentence
        assert not (tmp_path / "data" / "campus.db").exists()
    (keys / "campus.db").rename(tmp_path / "data" / "campus.db")
    assert command("key", "list", "--config", str(config)).returncode == 0


def test_a_lost_core_schema_beside_a_full_one_is_not_taken_for_new(tmp_path: Path, postgres: Postgres) -> None:
    name = postgres.create_database()
    config = config_of(tmp_path, postgres.url(name))
    assert command("audit", "--config", str(config)).returncode == 0
    postgres.run("psql", "-d", name, "-c", "DROP SCHEMA campus CASCADE")
    sentence = refused(config, "key", "list")
    assert f"the schema campus of the database {name} at {postgres.sockets}/.s.PGSQL.5432 is missing" in sentence
    postgres.drop_database(name)


def test_an_operator_learns_at_start_that_a_buildings_database_was_lost(tmp_path: Path) -> None:
    config = write_config(tmp_path, '[storage]\nurl = "sqlite:data"\n[buildings.recorder]\n', port=free_port())
    lost, run = tmp_path / "data" / "recorder.db", ("run", "recorder.follow_keys", "--config", str(config))
    assert "database was lost" not in command(*run).stderr + command(*run).stderr
    lost.unlink()
    said = command(*run).stderr
    assert "database was lost" in said
    assert f"missing={lost} " in said
    assert "stop this campus and restore all of its data from one backup" in said
    assert "database was lost" not in command(*run).stderr


def test_a_new_building_beside_a_full_database_is_new(tmp_path: Path) -> None:
    config = write_config(tmp_path, '[buildings.gateway]\npath = "/"\n', port=free_port())
    assert command("audit", "--config", str(config)).returncode == 0
    assert command("audit", "--config", str(config_of(tmp_path, "sqlite:data"))).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts in the directory of another user")
def test_what_root_makes_in_the_directory_of_a_service_belongs_to_the_service(tmp_path: Path) -> None:
    """Else an operator who runs `campus check` right after the first start takes the databases from the service, which has its own user."""
    service = 12345
    folder = tmp_path / "data"
    folder.mkdir()
    os.chown(folder, service, service)
    command("check", "--config", str(config_of(tmp_path, "sqlite:data")))
    command("key", "issue", "cve", "--config", str(tmp_path / "campus.toml"))
    files = {file.name: (file.stat().st_uid, file.stat().st_gid) for file in folder.iterdir()}
    assert files.keys() >= {"campus.db", "cve.db"}
    assert set(files.values()) == {(service, service)}


FULL = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n{CAMPUS}"
"""The program of the `campus` command where files cannot grow, as on a full disk."""


@pytest.mark.faults("disk full")
def test_reading_works_on_a_full_disk_and_what_would_write_says_so(tmp_path: Path) -> None:
    config = config_of(tmp_path, "sqlite:data")
    assert command("key", "issue", "cve", "--note", "before", "--config", str(config)).returncode == 0
    assert command("audit", "--config", str(config)).returncode == 0
    read_where_nothing_can_be_written(lambda *words: shared().run(FULL, *words, "--config", str(config), timeout=patience(60)), tmp_path)


def read_where_nothing_can_be_written(campus: Callable[..., CompletedProcess[str]], folder: Path) -> None:
    listed = campus("key", "list", "--json")
    assert (listed.returncode, '"note": "before"' in listed.stdout) == (0, True), listed.stderr
    audited = campus("audit")
    assert (audited.returncode, audited.stdout) == (0, "all is well\n"), audited.stderr
    checked = campus("check")
    assert (checked.returncode, f"the directory {folder / 'data'} cannot be written" in checked.stdout) == (1, True), checked.stderr
    issued = campus("key", "issue", "cve")
    assert (issued.returncode, issued.stderr.startswith("campus: ")) == (2, True), issued.stderr
    served = campus("serve")
    assert (served.returncode, f"the directory {folder / 'data'} cannot be written" in served.stderr) == (2, True), served.stderr
