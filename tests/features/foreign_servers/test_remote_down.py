"""Buildings on another server that is down: at start, later, and when it comes back."""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import command_of
from fastmcp import Client, FastMCP
from patience import patience
from serving import Served, free_port, serving, write_config

from campus import Building, Page, Request, Response, Site, free
from campus.asgi import Endpoints
from campus.catalog.plan import plan_of
from campus.http.edge import Edge
from campus.testing import open_campus
from tests import patient
from tests.features.foreign_servers.test_remote_building import CONFIG, REMOTE, remote

pytestmark = pytest.mark.anyio

OTHERS = """
[buildings.gateway]
path = "/"
"""
SILENT = """
[buildings.tides]
server = {{ url = "http://jane:hunter2@127.0.0.1:{port}/mcp?token=hush" }}
tools = {{ "*" = {{ free = true }} }}
"""
COMMAND = """#!{python}
import os
from fastmcp import FastMCP
mcp = FastMCP("Tides")

@mcp.tool(annotations={{"readOnlyHint": True}})
def tide(port: str) -> str:
    "The process that tells the tide."
    return str(os.getpid())

mcp.run(transport="stdio", show_banner=False)
"""


def until(answers: Callable[[], bool], served: Served) -> None:
    give_up_at = time.monotonic() + patience(90)
    while not answers():
        assert time.monotonic() < give_up_at, served.log
        time.sleep(0.1)


def tide(served: Served) -> httpx.Response:
    return patient.get(f"{served.url}/v1/tide?port=Brest")


def findings(served: Served) -> list[str]:
    found: list[str] = patient.get(f"{served.admin}/readyz").json()["checks"]["tides"]
    return found


async def called(served: Served, **arguments: Any) -> Any:
    async with Client(f"{served.url}/tides/mcp") as client:
        result = await client.call_tool_mcp("tide", arguments)
    assert result.is_error
    return result.structured_content


async def test_a_remote_that_is_down_at_start_is_opened_when_it_answers(tmp_path: Path) -> None:
    port = free_port()
    with serving(tmp_path, OTHERS + CONFIG.format(port=port)) as campus:
        assert patient.get(f"{campus.url}/v1/gateway/list_buildings").json()["count"] == 1
        assert patient.get(f"{campus.url}/tides/mcp/server-card").status_code == 503
        assert "tides" not in patient.get(f"{campus.url}/llms.txt").text
        for path in ("/v1/tide?port=Brest", "/v1/tides/anything", "/v1/tides"):
            answer = patient.get(campus.url + path)
            assert (answer.status_code, answer.json()["code"]) == (503, "upstream_unavailable"), path
            assert answer.headers["retry-after"]
        assert (await called(campus, port="Brest"))["status"] == 503
        async with Client(f"{campus.url}/tides/mcp") as client:
            with pytest.raises(Exception, match="cannot be reached"):
                await client.list_tools()
        (sentence,) = findings(campus)
        assert f"http://127.0.0.1:{port}" in sentence
        assert patient.get(f"{campus.url}/readyz").status_code == 200
        with remote(port):
            until(lambda: tide(campus).status_code == 200, campus)
            assert tide(campus).json() == {"result": "high at Brest"}
            async with Client(f"{campus.url}/tides/mcp") as client:
                assert [tool.name for tool in await client.list_tools()] == ["tide"]
                assert (await client.call_tool("tide", {"port": "Brest"})).data == "high at Brest"
            listed = patient.get(f"{campus.url}/v1/gateway/list_buildings").json()["buildings"]
            assert [one["name"] for one in listed] == ["gateway", "tides"]
            assert "/v1/tide" in patient.get(f"{campus.url}/tides/openapi.json").json()["paths"]
            assert "/v1/tide" in patient.get(f"{campus.url}/v1/openapi.json").json()["paths"]
            assert patient.get(f"{campus.url}/tides/mcp/server-card").json()["remotes"][0]["url"] == f"{campus.url}/tides/mcp"
            for document in ("llms.txt", "connect", ".well-known/ai-catalog.json"):
                assert f"{campus.url}/tides/mcp" in patient.get(f"{campus.url}/{document}").text
            assert patient.get(f"{campus.url}/v1/tides").json()["ok"]
            until(lambda: findings(campus) == [], campus)  # findings are cached for a second


async def test_a_remote_that_goes_down_later_keeps_its_tools_listed_and_comes_back(tmp_path: Path) -> None:
    port = free_port()
    with remote(port) as elsewhere, serving(tmp_path, CONFIG.format(port=port)) as campus:
        assert tide(campus).status_code == 200
        elsewhere.kill()
        elsewhere.wait()
        answer, over_mcp = tide(campus), await called(campus, port="Brest")
        assert (answer.status_code, answer.json()["code"]) == (over_mcp["status"], over_mcp["code"]) == (503, "upstream_unavailable")
        async with Client(f"{campus.url}/tides/mcp") as client:
            assert [tool.name for tool in await client.list_tools()] == ["tide"]
        (sentence,) = findings(campus)
        assert f"http://127.0.0.1:{port}" in sentence
        with remote(port):
            until(lambda: tide(campus).status_code == 200, campus)
            until(lambda: findings(campus) == [], campus)  # findings are cached for a second
        assert "HTTP Request" not in campus.log


async def test_what_a_remote_refuses_is_the_same_over_both_frames(tmp_path: Path) -> None:
    port = free_port()
    with remote(port), serving(tmp_path, CONFIG.format(port=port)) as campus:
        wrong, over_mcp = patient.get(f"{campus.url}/v1/tide"), await called(campus)
        assert (wrong.status_code, wrong.json()["code"]) == (over_mcp["status"], over_mcp["code"]) == (422, "invalid_request")
        assert "port" in wrong.text
        dry, over_mcp = patient.get(f"{campus.url}/v1/tide?port=Paris"), await called(campus, port="Paris")
        assert (dry.status_code, dry.json()["code"]) == (over_mcp["status"], over_mcp["code"]) == (400, "tool_error")
        assert dry.json()["detail"] == over_mcp["detail"] == "Paris has no sea"


class Unlisted(Page):
    """A page that cannot be listed in the navigation."""

    def __getattribute__(self, name: str) -> Any:
        if name == "label":
            raise RuntimeError("no label today")
        return super().__getattribute__(name)


async def test_a_late_building_that_fails_halfway_leaves_nothing_behind_and_may_come_again() -> None:
    async def board(request: Request, site: Site[Any, Any]) -> Response:
        return Response("high")

    def building(name: str) -> Building:
        mcp: FastMCP[Any] = FastMCP(name)

        @mcp.tool(annotations={"readOnlyHint": True}, meta=free())
        async def tide() -> str:
            """Tell the tide."""
            return name

        return Building(mcp)

    async with open_campus(harbour=building("Harbour"), quay=building("Quay")) as campus, AsyncExitStack() as stack:
        service = campus.service
        harbour, quay = service.plan.opened
        assert "quay" in await service.ask("check")
        without = replace(service, plan=plan_of(service.plan.config, [harbour], [quay.loaded]))
        assert "quay" not in await without.ask("check")
        endpoints = Endpoints(without)
        await stack.enter_async_context(endpoints.opened(harbour))
        await stack.enter_async_context(endpoints.closed(quay.loaded))
        endpoints.route()
        app = Edge(endpoints, public_url="http://campus.test", port=80)
        http = await stack.enter_async_context(patient.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://campus.test"))
        broken = replace(quay.loaded, building=replace(quay.loaded.building, pages=[Unlisted("GET /board", board)]))
        assert isinstance(await endpoints._add(replace(quay, loaded=broken), stack), RuntimeError)
        assert [one.name for one in without.plan.directory.buildings()] == [one.name for one in without.plan.opened] == ["harbour"]
        for path in ("/v1/quay/tide", "/v1/quay", "/tools/quay/tide", "/board"):
            assert (await http.get(path)).status_code in (404, 503), path
        assert (await http.get("/v1/harbour/tide")).json() == {"result": "Harbour"}
        assert await endpoints._add(quay, stack) is None
        assert (await http.get("/v1/quay/tide")).json() == {"result": "Quay"}
        assert (await http.get("/v1/quay")).status_code == 200
        assert "quay" in await without.ask("check")


async def test_a_pattern_that_only_javascript_reads_is_left_to_its_server(tmp_path: Path) -> None:
    port = free_port()
    schema = '{"type": "string", "pattern": r"^\\p{Lu}\\p{Ll}+$"}'
    given = f'import asyncio\nasyncio.run(mcp.get_tool("tide")).parameters["properties"]["port"] = {schema}\nmcp.run('
    with remote(port, REMOTE.replace("mcp.run(", given)), serving(tmp_path, CONFIG.format(port=port)) as campus:
        answer = tide(campus)
        assert answer.status_code == 200, (answer.text, campus.log)
        async with Client(f"{campus.url}/tides/mcp") as client:
            assert not (await client.call_tool_mcp("tide", {"port": "Brest"})).is_error


def test_a_command_that_is_installed_later_or_killed_is_started_without_the_operator(tmp_path: Path) -> None:
    program = tmp_path / "tides-server"
    table = f'[buildings.tides]\nserver = {{ command = "{program}", args = ["--token", "hush"] }}\n'
    with serving(tmp_path, OTHERS + table + 'tools = { tide = { free = true, route = "GET /v1/tide" } }\n') as campus:
        assert tide(campus).status_code == 503
        assert patient.get(f"{campus.url}/v1/gateway/list_buildings").status_code == 200
        (sentence,) = findings(campus)
        assert str(program) in sentence
        program.write_text(COMMAND.format(python=sys.executable))
        program.chmod(0o700)
        until(lambda: tide(campus).status_code == 200, campus)
        first = tide(campus).json()["result"]
        os.kill(int(first), signal.SIGKILL)
        until(lambda: tide(campus).json().get("result", first) != first, campus)
        until(lambda: findings(campus) == [], campus)  # findings are cached for a second
        assert "hush" not in sentence + campus.log


def test_the_check_names_the_address_and_none_of_its_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    answer = command_of(capsys)("check", "--config", str(write_config(tmp_path, SILENT.format(port=port), port=8000)))
    assert answer.code == 1
    assert f"http://127.0.0.1:{port}" in answer.out
    assert "hunter2" not in answer.out + answer.err
    assert "token" not in answer.out + answer.err
