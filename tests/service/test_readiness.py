"""/readyz tests a write to every database: one that is locked or full is found, and its building is named."""

import resource
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import anyio
import asyncpg
import httpx
import pytest
from patience import patience
from serving import Served, serving
from sqlalchemy import text

from buildings.cve.building import building as cve
from buildings.recorder import building as recorder
from campus import checks
from campus.checks import clock_findings
from campus.core import utc_now
from campus.storage.databases import Databases
from campus.storage.tables import CoreTables
from campus.testing import TestCampus, open_campus
from tests import patient
from tests.conftest import Postgres

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def locked(storage_url: str, building: str, postgres: Postgres) -> AsyncIterator[None]:
    if storage_url.startswith("sqlite:"):
        with closing(sqlite3.connect(Path(storage_url.removeprefix("sqlite:")) / f"{building}.db", isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            yield
            database.execute("ROLLBACK")
        return
    name = storage_url.partition("@/")[2].partition("?")[0]
    connection = await asyncpg.connect(host=str(postgres.sockets), user="postgres", database=name)
    try:
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE {building}.alembic_version IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()


async def readiness(campus: TestCampus) -> httpx.Response:
    await anyio.sleep(1.1)
    return await campus.http.get("/readyz")


async def test_a_clock_that_differs_from_that_of_the_database_is_a_finding(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Databases.open(postgres.url(name := postgres.create_database())) as databases:
        storage = await databases.storage_of("campus", CoreTables)
        assert await clock_findings(storage) == []
        for seconds, said in ((-95, "is 95 s behind that of"), (95, "is 95 s ahead of that of")):
            monkeypatch.setattr(checks, "utc_now", lambda ahead=seconds: utc_now() + timedelta(seconds=ahead))
            [sentence] = await clock_findings(storage)
            assert said in sentence
    postgres.drop_database(name)


@pytest.mark.both_databases
async def test_a_building_whose_database_is_locked_is_named_and_the_others_stay_in_rotation(storage_url: str, postgres: Postgres) -> None:
    async with open_campus(
        storage=storage_url, tables={"buildings": {"recorder": {}, "cve": {"sample": True}}}, recorder=recorder, cve=cve
    ) as campus:
        assert (await readiness(campus)).json()["checks"]["storage"] == "ok"
        async with locked(storage_url, "recorder", postgres):
            answer, findings = await readiness(campus), await campus.findings()
            assert (answer.status_code, answer.json()["checks"]["storage"], answer.json()["checks"]["recorder"]) == (200, "ok", "failed")
            assert any("recorder" in one and "was locked by another process" in one for one in findings["recorder"])
        assert (await readiness(campus)).status_code == 200
        async with locked(storage_url, "cve", postgres):
            answer, findings = await readiness(campus), await campus.findings()
            assert (answer.status_code, answer.json()["checks"]["storage"], answer.json()["checks"]["cve"]) == (200, "ok", "failed")
            assert any("was locked by another process" in sentence for sentence in findings["cve"])
            assert (await campus.call("brief_teaser", building="cve")).status == 200, "its calls only read"


async def test_a_column_that_a_feature_misses_takes_the_campus_out_of_rotation(storage_url: str) -> None:
    async with open_campus(storage=storage_url, recorder=recorder) as campus:
        assert (await readiness(campus)).status_code == 200
        async with campus.service.core.storage.write() as session:
            await (await session.connection()).execute(text("ALTER TABLE payments RENAME COLUMN reason TO why"))
        assert (await readiness(campus)).status_code == 503


async def test_a_write_of_our_own_that_does_not_end_is_found_too() -> None:
    async with open_campus(recorder=recorder) as campus:
        async with campus.site.storage.write() as session:
            await session.connection()
            assert (await campus.http.get("/readyz")).status_code == 503
            assert (await campus.findings())["storage"] == [
                "the database of recorder did not accept a write within 6 s; check what locks it"
            ]
        assert (await readiness(campus)).status_code == 200


def storage_of(campus: Served) -> tuple[int, list[str]]:
    answer = patient.get(f"{campus.admin}/readyz")
    return answer.status_code, answer.json()["checks"]["storage"]


def until(campus: Served, status: int) -> list[str]:
    give_up_at = monotonic() + patience(60)
    while (found := storage_of(campus))[0] != status:
        assert monotonic() < give_up_at, (found, campus.log)
        sleep(0.2)
    return found[1]


def test_a_building_whose_database_cannot_grow_is_not_ready_until_it_can(tmp_path: Path) -> None:
    file = tmp_path / "data" / "recorder.db"
    connected = partial(sqlite3.connect, file)
    with serving(tmp_path, "[buildings.recorder]\n") as campus, closing(connected()) as reader, closing(connected()) as writer:
        until(campus, 200)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # its snapshot prevents the write-ahead log from restarting
        for _ in range(100):  # the recorder's log is now longer than campus's own
            with writer:
                writer.execute("UPDATE alembic_version SET version_num = version_num")
        size = file.with_name("recorder.db-wal").stat().st_size
        assert size > file.with_name("campus.db-wal").stat().st_size + 100_000
        _, hard = resource.prlimit(campus.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(campus.process.pid, resource.RLIMIT_FSIZE, (size, hard))
        [sentence] = until(campus, 503)
        assert "recorder.db" in sentence
        assert patient.get(f"{campus.url}/readyz").json()["checks"]["storage"] == "failed"
        assert patient.get(f"{campus.url}/v1/recorder").status_code == 200
        resource.prlimit(campus.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        assert until(campus, 200) == []
