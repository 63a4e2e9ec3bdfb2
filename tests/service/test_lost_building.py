"""A building whose database PostgreSQL refuses: its own calls get 503, the others are served, /readyz names it, and the log stays small."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware
from patience import patience
from service.conftest import FRAMES
from serving import Served, serving

from campus import Building, free, route
from campus.errors import StorageFault
from campus.testing import open_campus
from tests import patient
from tests.conftest import Postgres

CONFIG = """
[storage]
url = "{url}"
[products.cve]
scope = "cve"
price = "19"
term = "30 days"
[buildings.recorder]
[buildings.cve]
sample = true
kev_url = "file:///nowhere"
osv_ecosystems = []
kev_mirror_url = "file:///nowhere"
epss_url = "file:///nowhere"
nvd_url = "file:///nowhere"
"""
BEAT = f"/v1/recorder/beat/{'m' * 16}/{'s' * 32}"
MONITOR = {"name": "nightly", "alert_webhook": "https://hooks.example.com/x"}
MCP = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
CALLS = 40
LOGGED = 64_000
"""Bytes of a log in which two tracebacks and some lines of each cause have room."""

TO_ANOTHER_ROLE = """
DO $$ DECLARE each record; BEGIN
  FOR each IN SELECT tablename FROM pg_tables WHERE schemaname = 'recorder' AND tablename <> 'alembic_version' LOOP
    EXECUTE format('ALTER TABLE recorder.%I OWNER TO postgres', each.tablename);
  END LOOP;
END $$
"""


REFUSED_BY_TRIGGERS = """
CREATE FUNCTION recorder.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'ZX123'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE OR INSERT ON recorder.monitor EXECUTE FUNCTION recorder.refuse();
CREATE TRIGGER refuse BEFORE UPDATE ON recorder.alembic_version EXECUTE FUNCTION recorder.refuse()
"""
SLOW = """
CREATE FUNCTION {schema}.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NULL; END $$;
CREATE TRIGGER slow BEFORE INSERT ON {schema}.{table} EXECUTE FUNCTION {schema}.slow()
"""


@pytest.fixture
def owned(postgres: Postgres) -> Iterator[str]:
    """A database that belongs to a role of the same name, which is no superuser."""
    name = postgres.create_database()
    sql(postgres, name, f"CREATE ROLE {name} LOGIN; GRANT ALL ON DATABASE {name} TO {name}")
    yield name
    postgres.drop_database(name)
    sql(postgres, name, f"DROP OWNED BY {name}; DROP ROLE {name}")


def sql(postgres: Postgres, database: str, statements: str) -> None:
    give_up_at = monotonic() + patience(20)
    while True:  # it may meet the campus that is served in a deadlock
        try:
            postgres.run("psql", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", statements)
            return
        except subprocess.CalledProcessError as error:
            if b"deadlock detected" not in error.stderr or monotonic() > give_up_at:
                raise


def config_of(postgres: Postgres, database: str) -> str:
    return CONFIG.format(url=postgres.url(database).replace("postgres@", f"{database}@"))


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (TO_ANOTHER_ROLE, "42501"),
        ("DROP SCHEMA recorder CASCADE", "42P01"),
        ("ALTER TABLE recorder.monitor RENAME COLUMN period TO other", "42703"),
        (REFUSED_BY_TRIGGERS, "ZX123"),
    ],
)
def test_a_lost_building_is_named_and_the_others_are_served(tmp_path: Path, postgres: Postgres, owned: str, fault: str, code: str) -> None:
    with (
        serving(tmp_path, config_of(postgres, owned)) as campus,
        patient.Client(base_url=campus.url, timeout=patience(30), verify=False) as client,
    ):
        assert readiness(campus, {"recorder": "ok"})["storage"] == "ok"
        before = len(campus.log)
        sql(postgres, owned, fault)
        for _ in range(CALLS):
            refused = client.get(BEAT)
            assert (refused.status_code, refused.json()["code"]) == (503, "storage_unavailable"), refused.text
            assert code not in refused.text
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "register_monitor", "arguments": MONITOR}}
        for _ in range(5):
            said = json.loads(client.post("/recorder/mcp", json=body, headers=MCP).text.partition("data: ")[2])["result"]
            assert (said["isError"], said["structuredContent"]["code"]) == (True, "storage_unavailable")
        assert client.get("/v1/brief/teaser").status_code == 200
        assert readiness(campus, {"recorder": "failed"})["storage"] == "ok"
        found = patient.get(f"{campus.admin}/readyz", timeout=patience(30)).json()["checks"]["recorder"]
        assert any(sentence.startswith("the schema recorder ") and f"[{code}]" in sentence for sentence in found), found
        logged = campus.log[before:]
        assert f"[{code}]" in logged
        assert "ERROR" in logged
        assert len(logged) < LOGGED, (len(logged), [line[:100] for line in logged.splitlines() if line[:2] == "20"])
        answer = campus.command("check")
        assert answer.returncode in (1, 2), answer.stdout
        assert "Traceback" not in answer.stdout + answer.stderr


def test_a_statement_that_is_cancelled_is_503_and_a_command_says_it_in_a_sentence(tmp_path: Path, postgres: Postgres, owned: str) -> None:
    with serving(tmp_path, config_of(postgres, owned)) as campus:
        for schema, table in ("campus", "keys"), ("recorder", "monitor"):
            sql(postgres, owned, SLOW.format(schema=schema, table=table))
        sql(postgres, owned, f"ALTER ROLE {owned} SET statement_timeout = '1s'")
        sql(postgres, owned, f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{owned}'")
        refused = patient.post(f"{campus.url}/v1/recorder/monitors", json=MONITOR, timeout=patience(60))
        assert (refused.status_code, refused.json()["code"]) == (503, "storage_unavailable"), refused.text
        assert "[57014]" in campus.log
        answer = campus.command("key", "issue", "cve")
        assert (answer.returncode, answer.stderr.count("\n")) == (2, 1), answer.stderr
        assert "[57014]" in answer.stderr


@pytest.mark.anyio
@pytest.mark.parametrize("middleware", [[], [Middleware()]], ids=["directly", "through its server"])
async def test_a_tool_without_its_database_answers_503_over_both_frames(
    middleware: list[Middleware], caplog: pytest.LogCaptureFixture
) -> None:
    mcp: FastMCP[Any] = FastMCP("Bank", middleware=middleware)

    @mcp.tool(meta=route("GET /v1/bank/balance") | free(), annotations={"readOnlyHint": True})
    async def balance() -> int:
        """The balance."""
        raise StorageFault("the database of the bank is damaged [SQLITE_CORRUPT]")

    for frame in FRAMES:
        async with open_campus(frame=frame, bank=Building(mcp)) as campus:
            reply = await campus.call("balance")
        assert (reply.status, reply.code) == (503, "storage_unavailable"), frame
        assert "SQLITE" not in str(reply.data)
    said = [record for record in caplog.records if "SQLITE_CORRUPT" in record.getMessage()]
    assert [(record.levelname, record.exc_info) for record in said if record.name == "campus.paywall.gate"] == [("ERROR", None)] * 2


def readiness(campus: Served, wanted: dict[str, str]) -> dict[str, str]:
    deadline = monotonic() + patience(30)
    while True:
        answer = patient.get(f"{campus.url}/readyz", timeout=patience(30))
        assert answer.status_code == 200, answer.text
        checks: dict[str, str] = answer.json()["checks"]
        if wanted.items() <= checks.items():
            return checks
        assert monotonic() < deadline, (checks, campus.log)
        sleep(0.2)
