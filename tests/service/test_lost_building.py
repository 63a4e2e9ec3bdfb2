"""A building whose database PostgreSQL refuses: its own calls get 503, the others are served, /readyz names it, and the log stays small."""

import json
from pathlib import Path
from time import monotonic, sleep

import httpx
import pytest
from patience import patience
from serving import Served, command, serving

from tests.conftest import Postgres

CONFIG = """
[storage]
url = "{url}"
[buildings.recorder]
[buildings.cve]
sample = true
kev_url = "file:///nowhere"
kev_mirror_url = "file:///nowhere"
epss_url = "file:///nowhere"
nvd_url = "file:///nowhere"
"""
BEAT = f"/v1/recorder/beat/{'m' * 16}/{'s' * 32}"
MONITOR = {"name": "nightly", "alert_webhook": "https://hooks.example.com/x"}
MCP = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
CALLS = 40
LOGGED = 40_000
"""Bytes of a log in which three tracebacks and some lines of each cause have room."""

TO_ANOTHER_ROLE = """
DO $$ DECLARE each record; BEGIN
  FOR each IN SELECT tablename FROM pg_tables WHERE schemaname = 'recorder' AND tablename <> 'alembic_version' LOOP
    EXECUTE format('ALTER TABLE recorder.%I OWNER TO postgres', each.tablename);
  END LOOP;
END $$
"""


@pytest.fixture
def owned(postgres: Postgres):
    """A database of a role that is no superuser."""
    name = postgres.create_database()
    sql = (f"CREATE ROLE clerk_{name} LOGIN", f"GRANT ALL ON DATABASE {name} TO clerk_{name}")
    postgres.run("psql", "-d", name, *(word for each in sql for word in ("-c", each)))
    yield name
    postgres.drop_database(name)
    postgres.run("psql", "-d", name, "-c", f"DROP OWNED BY clerk_{name}", "-c", f"DROP ROLE clerk_{name}")


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (TO_ANOTHER_ROLE, "42501"),
        ("DROP SCHEMA recorder CASCADE", "42P01"),
        ("ALTER TABLE recorder.monitor RENAME COLUMN period TO other", "42703"),
        ("CREATE FUNCTION recorder.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'ZX123'; END $$;"
         " CREATE TRIGGER refuse BEFORE UPDATE OR INSERT ON recorder.monitor EXECUTE FUNCTION recorder.refuse();"
         " CREATE TRIGGER refuse BEFORE UPDATE ON recorder.alembic_version EXECUTE FUNCTION recorder.refuse()", "ZX123"),
    ],
)  # fmt: skip
def test_a_lost_building_is_named_and_the_others_are_served(tmp_path: Path, postgres: Postgres, owned: str, fault: str, code: str) -> None:
    url = postgres.url(owned).replace("postgres@", f"clerk_{owned}@")
    with serving(tmp_path, CONFIG.format(url=url)) as campus, httpx.Client(base_url=campus.url, timeout=patience(30)) as client:
        assert readiness(campus, {"recorder": "ok"})["storage"] == "ok"
        before = len(campus.log)
        postgres.run("psql", "-d", owned, "-c", fault)
        for _ in range(CALLS):
            refused = client.get(BEAT)
            assert (refused.status_code, refused.json()["code"]) == (503, "storage_unavailable"), refused.text
            assert code not in refused.text
            assert "recorder" not in refused.json()["detail"]
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "register_monitor", "arguments": MONITOR}}
        said = json.loads(client.post("/recorder/mcp", json=body, headers=MCP).text.partition("data: ")[2])["result"]
        assert (said["isError"], said["structuredContent"]["code"]) == (True, "storage_unavailable")
        assert client.get("/v1/brief/teaser").status_code == 200
        assert readiness(campus, {"recorder": "failed"})["storage"] == "ok"
        [sentence] = [one for one in httpx.get(f"{campus.admin}/readyz", timeout=patience(30)).json()["checks"]["recorder"] if code in one]
        assert "the schema recorder" in sentence
        logged = campus.log[before:]
        assert f"[{code}]" in logged
        assert "ERROR" in logged
        assert len(logged) < LOGGED, logged
        answer = campus.command("check")
        assert answer.returncode in (1, 2)
        assert "Traceback" not in answer.stdout + answer.stderr


def test_a_statement_that_is_cancelled_is_503_and_a_command_says_it_in_a_sentence(tmp_path: Path, postgres: Postgres, owned: str) -> None:
    url = postgres.url(owned).replace("postgres@", f"clerk_{owned}@")
    config = CONFIG.format(url=url)
    with serving(tmp_path, config) as campus:
        for building in "campus", "recorder":
            postgres.run("psql", "-d", owned, "-c",
                f"CREATE FUNCTION {building}.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NULL; END $$",
                "-c", f"CREATE TRIGGER slow BEFORE INSERT ON {building}.{'keys' if building == 'campus' else 'monitor'} EXECUTE FUNCTION {building}.slow()",
            )  # fmt: skip
        postgres.run("psql", "-d", owned, "-c", f"ALTER ROLE clerk_{owned} SET statement_timeout = '1s'", "-c",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'campus' AND datname = current_database()")  # fmt: skip
        refused = httpx.post(f"{campus.url}/v1/recorder/monitors", json=MONITOR, timeout=patience(60))
        assert (refused.status_code, refused.json()["code"]) == (503, "storage_unavailable")
        assert "[57014]" in campus.log
        answer = command("key", "issue", "cve", "--config", str(campus.config))
        assert answer.returncode == 2
        assert answer.stderr.count("\n") == 1
        assert "[57014]" in answer.stderr


def readiness(campus: Served, wanted: dict[str, str]) -> dict[str, str]:
    """The checks of the public /readyz, which answers 200, once they are as wanted."""
    deadline = monotonic() + patience(30)
    while True:
        answer = httpx.get(f"{campus.url}/readyz", timeout=patience(30))
        assert answer.status_code == 200, answer.text
        checks: dict[str, str] = answer.json()["checks"]
        if wanted.items() <= checks.items():
            return checks
        assert monotonic() < deadline, (checks, campus.log)
        sleep(0.2)
