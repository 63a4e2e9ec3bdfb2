"""Servers that were not written for campus: of FastMCP and of the mcp SDK, in this process, as a command, and at an address."""

import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mcp
import pytest
from commands import Command, command_of
from fastmcp import Client
from serving import Served, free_port, serving

from campus.config import read_config
from tests import patient
from tests.features.foreign_servers import foreign_sdk
from tests.features.foreign_servers.test_remote_building import CONFIG, REMOTE, remote
from tests.features.foreign_servers.test_remote_down import until

pytestmark = pytest.mark.anyio
SDK = Path(foreign_sdk.__file__)
EXPOSED = 'expose = ["prompts", "resources"]\n'
STDIO = REMOTE[: REMOTE.index("mcp.run(")] + 'print("tide tables are loaded\\x1b[31m", file=sys.stderr)\nmcp.run(show_banner=False)\n'
SLOW = """
import time
from fastmcp import FastMCP
mcp = FastMCP("Slow")

@mcp.tool(annotations={"readOnlyHint": True})
def wait() -> str:
    "Answer too late."
    time.sleep(60)
    return "late"

mcp.run(show_banner=False)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(foreign_sdk, "STARTS", tmp_path / "starts of this process")
    shutil.copy(SDK, tmp_path / "rivers.py")
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    return command_of(capsys)


def without_meta(result: Any) -> Any:
    match result.model_dump(by_alias=True, mode="json", exclude_none=True) if hasattr(result, "model_dump") else result:
        case dict(members):
            return {name: without_meta(value) for name, value in members.items() if name != "_meta"}
        case list(items):
            return [without_meta(each) for each in items]
        case value:
            return value


def until_started(campus: Served, servers: Iterable[str]) -> None:
    until(lambda: all(patient.get(f"{campus.admin}/readyz").json()["checks"].get(name) == [] for name in servers), campus)


async def test_a_server_of_the_sdk_is_served_in_process_as_its_own_client_sees_it(folder: Path) -> None:
    with serving(folder, f'[buildings.rivers]\nserver = "./rivers.py:mcp"\n{EXPOSED}') as campus:
        async with mcp.Client(foreign_sdk.make()) as own, mcp.Client(f"{campus.url}/rivers/mcp") as through:
            assert through.instructions == own.instructions == "Levels of the Rhine."
            tools = {tool.name: tool for tool in (await through.list_tools()).tools}
            for tool in (await own.list_tools()).tools:
                shown = tools.pop(tool.name)
                assert str(shown.description).startswith(f"{tool.description}\n\nFree")
                plain = {"description", "meta", "execution", "output_schema"}  # campus adds what a call needs, and its refusals
                assert shown.model_dump(exclude=plain) == tool.model_dump(exclude=plain) | {"title": tool.title or shown.title}
            assert tools == {}
            for name, arguments in {"level": {"station": "Basel"}, "picture": {}}.items():
                assert without_meta(await through.call_tool(name, arguments)) == without_meta(await own.call_tool(name, arguments))
            for listed in ("list_resources", "list_resource_templates", "list_prompts"):
                assert without_meta(await getattr(through, listed)()) == without_meta(await getattr(own, listed)())
            for uri in ("rivers://harbours", "rivers://Basel/history"):
                assert without_meta(await through.read_resource(uri)) == without_meta(await own.read_resource(uri))
            asked_for = "report", {"station": "Basel"}
            assert without_meta(await through.get_prompt(*asked_for)) == without_meta(await own.get_prompt(*asked_for))
            named = mcp_reference(), {"name": "station", "value": "B"}
            assert without_meta(await through.complete(*named)) == without_meta(await own.complete(*named))
            (refused,) = (await through.call_tool("fail", {"how": "refused"})).content
            (by_own,) = (await own.call_tool("fail", {"how": "refused"})).content
            assert by_own.text in refused.text
        found = patient.get(f"{campus.url}/v1/rivers/level?station=Basel").json()
        assert found == {"station": "Basel (Rhine)", "metres": 2.5}
        failures = {how: patient.get(f"{campus.url}/v1/rivers/fail?how={how}") for how in ("refused", "protocol", "crash")}
        assert {how: (answer.status_code, answer.json()["code"]) for how, answer in failures.items()} == {
            "refused": (400, "tool_error"),
            "protocol": (400, "tool_error"),
            "crash": (400, "tool_error"),  # its server is up, and says that it failed
        }
        assert "the gauge is frozen" in failures["protocol"].text
        assert "hunter2" not in failures["crash"].text
        assert patient.get(f"{campus.url}/v1/rivers/level").status_code == 422


def mcp_reference() -> Any:
    return foreign_sdk.PromptReference(name="report")


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


def test_an_answer_that_takes_longer_than_the_servers_timeout_is_a_504(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    server = f'{{ command = "{sys.executable}", args = ["{tmp_path}/slow.py"], timeout = 2000 }}'
    with serving(tmp_path, f"[buildings.slow]\nserver = {server}\n") as campus:
        until_started(campus, ["slow"])
        answer = patient.get(f"{campus.url}/v1/slow/wait")
        assert (answer.status_code, answer.json()["code"]) == (504, "timeout")
        assert read_config(campus.config, {}).buildings["slow"].server
