"""A building whose own code raises an error when it is loaded: it is closed, as one whose command fails, and the others are served."""

from pathlib import Path

import pytest
from commands import Command, Ran, command_of
from fastmcp import Client
from serving import serving, write_config

from tests import patient

pytestmark = pytest.mark.anyio
FILES = {
    "unreadable": "from fastmcp import FastMCP\nmcp = FastMCP('Tides'\n",
    "missing": "import no_such_package_of_anybody\n",
    "ends": "import sys\nsys.exit('set TIDES_TOKEN')\n",
    "factory": "def mcp() -> object:\n    raise RuntimeError('the tides are out')\n",
}
REASONS = {
    "unreadable": "unreadable.py cannot be loaded: SyntaxError: '(' was never closed (at ",
    "missing": "missing.py cannot be loaded: ModuleNotFoundError: No module named 'no_such_package_of_anybody' (at ",
    "ends": "ends.py cannot be loaded: SystemExit: set TIDES_TOKEN (at ",
    "factory": "the server of building 'factory' cannot be made: RuntimeError: the tides are out (at ",
}
OTHERS = '[buildings.gateway]\npath = "/"\n'
TABLES = "".join(f'[buildings.{name}]\nserver = "./{name}.py:mcp"\n' for name in FILES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, source in FILES.items():
        (tmp_path / f"{name}.py").write_text(source)
    return tmp_path


def checked(run: Command, folder: Path, tables: str) -> Ran:
    return run("check", "--config", str(write_config(folder, tables, port=8000)))


async def test_a_failing_module_or_factory_closes_its_own_building_and_the_others_are_served(folder: Path) -> None:
    with serving(folder, TABLES + OTHERS) as campus:
        assert [one["name"] for one in patient.get(f"{campus.url}/v1/gateway/list_buildings").json()["buildings"]] == ["gateway"]
        checks = patient.get(f"{campus.admin}/readyz").json()["checks"]
        for name, reason in REASONS.items():
            assert reason in checks[name][0]
            assert checks[name][0].endswith("; its code is not loaded again before campus restarts")
            for path in (f"/v1/{name}/tide", f"/v1/{name}", f"/{name}/openapi.json"):
                answer = patient.get(campus.url + path)
                assert (answer.status_code, answer.json()["code"]) == (503, "upstream_unavailable"), path
            async with Client(f"{campus.url}/{name}/mcp") as client:
                with pytest.raises(Exception, match="cannot be reached or started"):
                    await client.list_tools()
        assert patient.get(f"{campus.url}/readyz").status_code == 200
        assert 'raise RuntimeError("the tides are out")'.replace('"', "'") in campus.log, "the log has the traceback"


def test_the_check_says_why_and_exits_as_for_a_command_and_mistakes_of_campus_toml_stop_everything(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = command_of(capsys)
    answer = checked(run, folder, TABLES + OTHERS)
    assert answer.code == 1
    for reason in REASONS.values():
        assert reason in answer.out
    for wrong, sentence in {"paht = '/'": "unknown key 'paht'", "[buildings.nobodys]": "no building 'nobodys' is installed"}.items():
        refused = checked(run, folder, f"{TABLES}{OTHERS}{wrong}\n")
        assert refused.code == 2
        assert sentence in refused.err
        assert REASONS["factory"] in refused.err, "all mistakes are named at once"


def test_nothing_is_served_where_every_building_fails_and_no_other_command_does_without_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = command_of(capsys)
    alone = checked(run, folder, TABLES)
    assert alone.code == 2
    assert REASONS["missing"] in alone.err
    config = str(write_config(folder, TABLES + OTHERS, port=8000))
    for words in (["tools"], ["migrate"], ["run", "factory.refresh"]):
        answer = run(*words, "--config", config)
        assert (answer.code, REASONS["factory"] in answer.err) == (2, True), words
