"""Servers that were not written for campus: of FastMCP and of the mcp SDK, in this process, as a command, and at an address."""

import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import mcp
import pytest
from commands import Command, command_of
from fastmcp import Client
from serving import Served, free_port, serving

from tests import patient
from tests.features.foreign_servers import foreign_sdk
from tests.features.foreign_servers.test_remote_building import CONFIG, REMOTE, remote
from tests.features.foreign_servers.test_remote_down import until

pytestmark = pytest.mark.anyio
SDK = Path(foreign_sdk.__file__)
STDIO = REMOTE[: REMOTE.index("mcp.run(")] + 'print("tide tables are loaded\\x1b[31m", file=sys.stderr)\nmcp.run(show_banner=False)\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(foreign_sdk, "STARTS", tmp_path / "starts of this process")
    shutil.copy(SDK, tmp_path / "rivers.py")
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    return command_of(capsys)


def until_started(campus: Served, servers: Iterable[str]) -> None:
    until(lambda: all(patient.get(f"{campus.admin}/readyz").json()["checks"].get(name) == [] for name in servers), campus)


async def test_the_results_of_a_server_of_the_sdk_are_its_own_and_its_failures_say_no_more_than_it_does(folder: Path) -> None:
    with serving(folder, '[buildings.rivers]\nserver = "./rivers.py:mcp"\n') as campus:
        async with mcp.Client(foreign_sdk.make()) as own, mcp.Client(f"{campus.url}/rivers/mcp") as through:
            for name, arguments in {"level": {"station": "Basel"}, "picture": {}}.items():
                (shown, bare) = [(await client.call_tool(name, arguments)).model_dump(exclude={"meta"}) for client in (through, own)]
                assert shown == bare, name
            (refused,) = (await through.call_tool("fail", {"how": "refused"})).content
            (by_own,) = (await own.call_tool("fail", {"how": "refused"})).content
            assert by_own.text in refused.text
        found = patient.get(f"{campus.url}/v1/rivers/level?station=Basel").json()
        assert found == {"station": "Basel (Rhine)", "metres": 2.5}
        # of the crash too: its server is up, and says that it failed
        failures = {how: patient.get(f"{campus.url}/v1/rivers/fail?how={how}") for how in ("refused", "protocol", "crash")}
        assert {(answer.status_code, answer.json()["code"]) for answer in failures.values()} == {(400, "tool_error")}
        assert "the gauge is frozen" in failures["protocol"].text
        assert "hunter2" not in failures["crash"].text
        assert patient.get(f"{campus.url}/v1/rivers/level").status_code == 422


async def test_the_lifespan_of_an_sdk_server_is_entered_once_and_its_state_is_kept_between_calls(folder: Path) -> None:
    with serving(folder, '[buildings.rivers]\nserver = "./rivers.py:mcp"\n') as campus:
        counts = [patient.get(f"{campus.url}/v1/rivers/calls").json()["result"] for _ in range(2)]
        async with Client(f"{campus.url}/rivers/mcp") as client:
            counts.append((await client.call_tool("calls")).structured_content["result"])
    assert counts == [1, 2, 3]
    assert (folder / "starts").read_text() == "started\n"


def test_a_factory_takes_the_keys_of_its_table_and_a_wrong_one_is_named(folder: Path, run: Command) -> None:
    table = '[buildings.rivers]\nserver = "./rivers.py:make"\nriver = "Elbe"\n'
    with serving(folder, table) as campus:
        assert patient.get(f"{campus.url}/v1/rivers/level?station=Dresden").json()["station"] == "Dresden (Elbe)"
    (folder / "campus.toml").write_text(table + "depth = 3\n")
    answer = run("check")
    assert (answer.code, answer.err) == (
        2,
        "campus: unknown key 'depth' in [buildings.rivers]; ./rivers.py:make takes: river, harbours\n",
    )


async def test_servers_of_a_clients_configuration_are_served_and_what_they_write_to_stderr_bears_their_name(
    folder: Path, run: Command
) -> None:
    (folder / "tides.py").write_text(STDIO)
    port = free_port()
    python = {"command": sys.executable, "cwd": str(folder)}
    servers = {
        "sdk": python | {"args": ["rivers.py"]},
        "fast": python | {"args": ["tides.py"], "env": {"TIDES": "high"}},
        "far": {"type": "http", "url": f"http://127.0.0.1:{port}/mcp", "headers": {"X-Ours": "yes"}},
        "wiki": {"command": str(Path(sys.executable).with_name("wikipedia-mcp"))},
    }
    (folder / "claude_desktop_config.json").write_text(json.dumps({"mcpServers": servers}))
    assert run("import", "claude_desktop_config.json").code == 0
    imported = (folder / "campus.toml").read_text()
    tables = imported[imported.index("\n[buildings.sdk]") :]
    with remote(port), serving(folder, tables) as campus:
        until_started(campus, servers)
        assert patient.get(f"{campus.url}/v1/sdk/level?station=Basel").json() == {"station": "Basel (Rhine)", "metres": 2.5}
        for name in ("fast", "far"):
            assert patient.get(f"{campus.url}/v1/{name}/tide?port=Brest").json() == {"result": "high at Brest"}
            async with Client(f"{campus.url}/{name}/mcp") as client:
                assert (await client.call_tool("tide", {"port": "Brest"})).data == "high at Brest"
        assert "/v1/wiki/search_wikipedia" in patient.get(f"{campus.url}/wiki/openapi.json").json()["paths"]
        until(lambda: 'stderr building=fast line="tide tables are loaded [31m"' in campus.log, campus)
        assert patient.get(f"{campus.url}/v1/sdk/fail?how=crash").status_code == 400
        until(lambda: "building=sdk" in campus.log, campus)  # the traceback of the crash


TOOL = '@mcp.tool(annotations={"readOnlyHint": True})\n'
EBB = f'{TOOL}def ebb() -> str:\n    "The lowest water."\n    return "low"\n'


async def test_a_remote_that_lists_other_tools_is_served_with_these_at_their_prices(tmp_path: Path) -> None:
    port = free_port()
    prices = 'tools = { "*" = { key = "opens" }, tide = { free = true, route = "GET /v1/tide" } }\n'
    text = CONFIG.format(port=port)

    def tide() -> int:
        return patient.get(f"{campus.url}/v1/tide?port=Brest").status_code

    with serving(tmp_path, text[: text.index("tools =")] + prices) as campus:
        with remote(port):
            until(lambda: tide() == 200, campus)
            assert patient.get(f"{campus.url}/v1/tides/ebb").status_code == 404
        assert tide() == 503  # from now on it is probed each second
        with remote(port, REMOTE.replace("mcp.run(", f"{EBB}\nmcp.run(")):
            until(lambda: patient.get(f"{campus.url}/v1/tides/ebb").status_code == 402, campus)
            assert tide() == 200
            assert "/v1/tides/ebb" in patient.get(f"{campus.url}/tides/openapi.json").json()["paths"]
            async with Client(f"{campus.url}/tides/mcp") as client:
                assert {tool.name for tool in await client.list_tools()} == {"tide", "ebb"}
                assert (await client.call_tool_mcp("ebb", {})).structured_content["code"] == "access_required"
        assert tide() == 503
        without = REMOTE[: REMOTE.index("@mcp.tool")] + EBB + REMOTE[REMOTE.index("mcp.run(") :]
        with remote(port, without):
            finding = "names 'tide', but no tool has that name"
            until(lambda: finding in str(patient.get(f"{campus.admin}/readyz").json()["checks"]["tides"]), campus)
            assert patient.get(f"{campus.url}/v1/tides/ebb").status_code == 402
        with remote(port):
            until(lambda: patient.get(f"{campus.url}/v1/tides/ebb").status_code == 404, campus)
            until(lambda: patient.get(f"{campus.admin}/readyz").json()["checks"]["tides"] == [], campus)
