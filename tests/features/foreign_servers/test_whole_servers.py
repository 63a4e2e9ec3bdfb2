"""Servers that were not written for campus, asked bare and over campus, in both generations of the protocol: what differs has a reason."""

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import anyio
import mcp_types
import pytest
from as_bare import leaves
from fastmcp import Client
from listening import listening
from patience import patience

from campus.testing import TestCampus, open_campus
from tests.features.foreign_servers import whole_servers

pytestmark = pytest.mark.anyio
SOURCE = str(Path(whole_servers.__file__))
EXPOSED = {"expose": ["prompts", "resources"]}
MODES: tuple[Literal["legacy", "auto"], ...] = ("legacy", "auto")
"""The generations of the protocol."""
WITH_SESSIONS = "sdk_sse"
"""A server of an older version alone, behind a building whose callers have sessions."""
REASONS = {
    "hello.capabilities.*": "what campus can do for the server's clients: it keeps no sessions here, and shows apps",
    "tools.*.description": "says what a call needs",
    "tools.*.outputSchema.*": "allows campus's refusals",
}


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@dataclass(frozen=True)
class Servers:
    """A campus that serves all of them: at an address, by a command, and in its process."""

    campus: TestCampus
    url: str
    own: Mapping[str, Callable[[], Any]]
    """What makes the bare server behind each building."""


@pytest.fixture(scope="module")
async def servers() -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        apps = {
            "sdk_http/mcp": whole_servers.make_sdk().streamable_http_app(),
            "fast_http/mcp": whole_servers.make_fast().http_app(path="/mcp"),
            f"{WITH_SESSIONS}/sse": whole_servers.make_sdk().sse_app(),
        }
        tables: dict[str, Any] = {}
        for place, app in apps.items():
            name, _, path = place.partition("/")
            tables[name] = {"server": {"url": f"{await stack.enter_async_context(listening(app))}/{path}"}} | EXPOSED
        tables[WITH_SESSIONS]["server"]["transport"] = "sse"
        tables[WITH_SESSIONS]["sessions"] = True
        tables["sdk_command"] = {"server": {"command": sys.executable, "args": [SOURCE]}} | EXPOSED
        tables["sdk_here"] = {"server": f"{SOURCE}:make_sdk"} | EXPOSED
        made = {name: whole_servers.make_fast if name.startswith("fast") else whole_servers.make_sdk for name in tables}
        tables["named"] = {"server": f"{SOURCE}:make_sdk", "title": "Water", "about": "All the water of Europe."}
        tables["silent"] = {"server": f"{SOURCE}:make_silent"}
        campus = await stack.enter_async_context(open_campus(**dict.fromkeys(tables), tables={"buildings": tables}))
        with anyio.fail_after(patience(60)):
            while campus.service.plan.closed:  # noqa: ASYNC110  # a command starts slowly on a busy machine; nobody tells when
                await anyio.sleep(0.1)
        url = await stack.enter_async_context(listening(campus.app, lifespan="off"))
        yield Servers(campus, url, made)


async def asked(client: Client[Any]) -> dict[str, Any]:
    async with client:
        hello = client.session.initialize_result or client.session.discover_result
        station = {"name": "station", "value": "B"}
        answers = {
            "hello": hello,
            "tools": await client.list_tools_mcp(),
            "prompts": await client.list_prompts_mcp(),
            "resources": await client.list_resources_mcp(),
            "templates": await client.list_resource_templates_mcp(),
            "completion": await client.complete_mcp(mcp_types.PromptReference(name="report"), station),
            "prompt": await client.get_prompt("report", {"station": "Bonn"}),
            "read": await client.read_resource_mcp("rivers://rhine"),
            "history": await client.read_resource_mcp("rivers://Bonn/history"),
            "called": await client.call_tool_mcp("zulu", {"station": "Bonn"}),
        }
    return {
        way: value
        for name, answer in answers.items()
        if answer
        for way, value in leaves(name, answer.model_dump(by_alias=True, mode="json"))
    }


async def test_a_foreign_server_is_over_campus_what_it_is_bare_but_for_what_has_a_reason(servers: Servers) -> None:
    used, unexplained = set(), {}
    bare = {(make, mode): await asked(Client(make(), mode=mode)) for make in {*servers.own.values()} for mode in MODES}
    for name, make in servers.own.items():
        for mode in MODES[:1] if name == WITH_SESSIONS else MODES:
            own = bare[make, mode]
            through = await asked(Client(f"{servers.url}/{name}/mcp", mode=mode))
            assert own.keys() >= {"hello.instructions", "completion.completion.total", "tools.tools.0.icons.0.src"}
            for way in sorted(own.keys() | through.keys()):
                if own.get(way) != through.get(way):
                    reasons = {pattern for pattern in REASONS if fnmatchcase(way, pattern)}
                    used |= reasons
                    if not reasons:
                        unexplained[f"{name} {mode}: {way}"] = own.get(way), through.get(way)
    assert unexplained == {}
    assert used == REASONS.keys()


async def test_a_server_is_told_what_its_caller_can_do_and_nothing_where_nobody_can_be_asked(servers: Servers) -> None:
    async def answer(*_: Any) -> dict[str, str]:
        return {"day": "Monday"}

    async def told_and_booked(client: Client[Any]) -> tuple[Any, Any]:
        async with client:
            told, booked = await client.call_tool_mcp("told", {}), await client.call_tool_mcp("book", {})
        return told.structured_content["result"], booked.structured_content.get("result", booked.structured_content.get("code"))

    http = servers.campus.http
    for name in (each for each in servers.own if each.startswith("sdk")):
        for mode in MODES:
            found = await told_and_booked(Client(f"{servers.url}/{name}/mcp", mode=mode))
            assert found == ([], "input_required"), (name, mode)
            found = await told_and_booked(Client(f"{servers.url}/{name}/mcp", mode=mode, elicitation_handler=answer))
            can_be_asked = mode == ("legacy" if name == WITH_SESSIONS else "auto")
            assert found == (["elicitation"], "booked for Monday") if can_be_asked else ([], "input_required"), (name, mode)
        assert (await http.get(f"/v1/{name}/told")).json() == {"result": []}
        over_http = await http.post(f"/v1/{name}/book", json={})
        assert (over_http.status_code, over_http.json()["code"]) == (409, "input_required")


async def test_the_directory_the_pages_and_clients_show_a_servers_title_and_what_it_says_and_campus_toml_wins(servers: Servers) -> None:
    expected = {
        "sdk_here": ("Rivers of Europe", "Levels of rivers, from their gauges."),
        "named": ("Water", "All the water of Europe."),
        "silent": ("silent-mcp", "Its tools: zulu, alpha, mike"),
    }
    http = servers.campus.http
    page = (await http.get("/docs/api", headers={"accept": "text/html"})).text
    for name, (title, about) in expected.items():
        entry = (await http.get(f"/v1/{name}")).json()
        document = (await http.get(f"/{name}/openapi.json")).json()["info"]
        card = (await http.get(f"/{name}/mcp/server-card")).json()
        assert (entry["title"], entry["about"]) == (document["title"], document["description"]) == (title, about)
        assert (card["title"], card["description"]) == (title, about)
        assert title in page
        async with Client(f"{servers.url}/{name}/mcp") as client:
            assert client.server_info is not None
            assert client.server_info.title == (None if name == "silent" else title)
