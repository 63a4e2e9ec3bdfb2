"""Opening buildings: what is refused, with which error."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client, FastMCP
from fastmcp.server.middleware.timing import TimingMiddleware
from fastmcp.tools import Tool
from mcp.server.lowlevel import Server as LowLevelServer
from pydantic import BaseModel, SecretStr
from pydantic import Field as SettingField
from sqlmodel import Field, SQLModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from campus import Building, Job, Settings, access, free, route
from campus.catalog.plan import Plan, make_plan
from campus.catalog.server import custom_routes
from campus.config import ServerTable, config_model
from campus.errors import CampusError
from campus.pricing import LOCAL_KEY
from campus.storage import registry
from campus.testing import Built, open_campus

pytestmark = pytest.mark.anyio


def server(*metas: dict[str, Any] | None, **options: Any) -> FastMCP[Any]:
    """A server with a tool per meta."""
    mcp: FastMCP[Any] = FastMCP("Test", **options)
    for index, meta in enumerate(metas):

        @mcp.tool(name=f"tool_{index}", meta=meta)
        async def tool() -> str:
            """A tool."""
            return "x"

    return mcp


def odd_server(schema: Any) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Test")
    parameters = {"type": "object", "properties": {"sides": schema}}
    mcp.add_tool(Tool.from_function(lambda sides: sides, name="roll").model_copy(update={"parameters": parameters}))
    return mcp


async def plan(table: dict[str, Any] | None = None, *, secrets: dict[str, str] | None = None, **buildings: Any) -> Plan:
    first = next(iter(buildings), "zoo")
    config = config_model().model_validate(
        {
            "buildings": {name: table or {} if name == first else {} for name in (first, *buildings)},
            "folder": Path(),
            "secrets": {name: SecretStr(value) for name, value in (secrets or {}).items()},
        }
    )
    return await make_plan(config, [Built(name, building) for name, building in buildings.items() if building is not None])


class Sealed(Settings):
    token: SecretStr


class Strict(Settings):
    """Settings with all kinds of fields."""

    feed_url: str
    token: SecretStr | None = None
    at: str = SettingField("20:30", pattern=r"^\d\d:\d\d$", examples=["20:30"])
    since: date | None = None


class Pathed(Settings):
    """Settings with a field that the table keeps for where the building is served."""

    path: str = "data"


low_level: LowLevelServer[Any] = LowLevelServer("Test")


def makes_low_level() -> LowLevelServer[Any]:
    return low_level


def takes_a_connection(connection: object) -> FastMCP[Any]:
    return server(None)


async def nothing(site: object) -> None:
    """A job."""


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a building that is not installed": ({"zoo": None}, {}, "no building 'zoo' is installed; the installed buildings are: none"),
    "a name that campus keeps": ({"errors": server(None)}, {}, "which campus uses itself"),
    "an entry point of another kind": ({"a": 42}, {}, "names a int; it must name a Building or a FastMCP server"),
    "a building for a later campus": (
        {"a": Building(server(None), contract=2)},
        {},
        "building 'a' is written for contract 2 of campus, and this is contract 1; install a newer campus, or a version of the building",
    ),
    "an unknown setting": (
        {"a": Building(server(None), settings=Strict)},
        {"feed_url": "x", "speed": 1},
        "unknown key 'speed' in [buildings.a]; the keys are: ",
    ),
    "a setting that campus has itself": (
        {"a": Building(server(None), settings=Pathed)},
        {},
        "has a setting 'path', which campus itself uses",
    ),
    "a setting of another form": (
        {"a": Building(server(None), settings=Strict)},
        {"feed_url": "x", "at": "8:30pm"},
        "buildings.a.at: write it as in '20:30'",
    ),
    "a setting that is no date": (
        {"a": Building(server(None), settings=Strict)},
        {"feed_url": "x", "since": "yesterday"},
        "buildings.a.since: write a date, such as 2026-08-19",
    ),
    "a missing setting": ({"a": Building(server(None), settings=Strict)}, {}, "buildings.a.feed_url is missing"),
    "a missing secret": (
        {"a": Building(server(None), settings=Sealed)},
        {},
        "building 'a' needs its secret token: set CAMPUS_A_TOKEN in the environment",
    ),
    "a secret in the file": (
        {"a": Building(server(None), settings=Strict)},
        {"feed_url": "x", "token": "y"},
        "put it into the environment as CAMPUS_A_TOKEN",
    ),
    "a tool that says nothing among paid ones": ({"a": server(access(price="1"), None)}, {}, "tool_1 declare neither access() nor free()"),
    "two tools on one route": (
        {"a": server(route("GET /v1/x")), "b": server(route("GET /v1/x"))},
        {},
        'route "GET /v1/x" is used by the tool tool_0 (a) and the tool tool_0 (b); give one of them a different route',
    ),
    "a route that campus serves": ({"a": server(route("GET /healthz"))}, {}, "is used by campus itself"),
    "the start page": ({"a": server(route("GET /"))}, {}, "is used by campus itself"),
    "a description's route": ({"a": server(route("GET /v1/a"))}, {}, "is used by campus itself"),
    "a document's route": ({"a": server(route("GET /a/openapi.json"))}, {}, "is used by campus itself"),
    "the main document's route": ({"a": server(route("GET /openapi.json"))}, {}, "is used by campus itself"),
    "a route that is none": ({"a": server(route("FETCH /v1/x"))}, {}, "'FETCH'"),
    "a route of an argument that is none": ({"a": server(route("GET /v1/x/{id}"))}, {}, "'id' is not one of its arguments"),
    "a server without tools": ({"a": server()}, {}, "has no tools"),
    "a factory that fails": ({"a": Building(lambda settings: 1 / 0)}, {}, "ZeroDivisionError"),
    "a factory of another kind": ({"a": Building(lambda settings: 1)}, {}, "returned a int"),  # type: ignore[arg-type, return-value]  # on purpose
    "a wrapped server that is not there": ({"a": None}, {"server": "json:nothing"}, "json has no 'nothing'; name a FastMCP server, or"),
    "a wrapped name that makes no server": ({"a": None}, {"server": "json:__all__"}, "has '__all__', which is a list; name a FastMCP"),
    "a wrapped server of the low level": ({"a": None}, {"server": f"{__name__}:low_level"}, "low-level server of the SDK, which campus"),
    "a wrapped server of mcp 1": (
        {"a": None},
        {"server": "mcp.server.fastmcp:FastMCP"},
        "another version of mcp than campus's own; `campus",
    ),
    "a wrapped factory that lacks an argument": (
        {"a": None},
        {"server": f"{__name__}:takes_a_connection"},
        "takes_a_connection takes connection: write it into [buildings.a] if campus.toml can say it; or `campus add PACKAGE`",
    ),
    "a wrapped factory that makes one of the low level": (
        {"a": None},
        {"server": f"{__name__}:makes_low_level"},
        "returned a Server; it must return a FastMCP server; `campus add PACKAGE`",
    ),
    "a wrapped address that is none": ({"a": None}, {"server": {"cmd": "x"}}, "neither command nor url"),
    "a wrapped server without a name": ({"a": None}, {"server": "json"}, "is not of the form module:server"),
    "a wrapped address that is none of the web": (
        {"a": None},
        {"server": {"url": "hello"}},
        "buildings.a.server.url (an address without a host) is not the address of a server",
    ),
    "a wrapped address that cannot be read": (
        {"a": None},
        {"server": {"url": "https://[::1/mcp"}},
        "buildings.a.server.url (an address that cannot be read) is not the address of a server",
    ),
    "a wrapped address without a host": (
        {"a": None},
        {"server": {"url": "https:///mcp"}},
        "(an address without a host) is not the address",
    ),
    "a command with an address": ({"a": None}, {"server": {"command": "x", "url": "https://x.example/mcp"}}, "both command and url"),
    "an address with a document": (
        {"a": None},
        {"server": {"openapi": "api.json", "url": "https://x.example/mcp"}},
        "has both url and openapi; write one of them",
    ),
    "an unknown key of an API": (
        {"a": None},
        {"server": {"openapi": "api.json"}, "sides": 6},
        "unknown key 'sides' in [buildings.a]; the keys are: path",
    ),
    "an unknown key of a command": ({"a": None}, {"server": {"command": "x", "argz": []}}, "unknown key 'argz' in buildings.a.server"),
    "a schema that is no object": ({"a": odd_server("integer")}, {}, "tool 'roll': its schemas cannot be read"),
    "a schema with a list of nothing": ({"a": odd_server({"enum": 6})}, {}, "tool 'roll': its schemas cannot be read"),
    "a job at no time of day": ({"a": Building(server(None), jobs=[Job(nothing, daily_at="25:00")])}, {}, "building 'a': job nothing: "),
    "a job with two schedules": (
        {"a": Building(server(None), jobs=[Job(nothing, every=__import__("datetime").timedelta(seconds=1), daily_at="01:00")])},
        {},
        "is both periodic and daily",
    ),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
async def test_what_cannot_be_opened_is_reported_in_one_sentence(case: str) -> None:
    buildings, table, said = REFUSED[case]
    with pytest.raises(CampusError) as caught:
        await plan(table, **buildings)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_form_of_a_server_that_no_feature_brings_is_refused_with_those_that_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("campus.installed.installed_features", dict)
    for server, said in (
        ({"command": "x"}, 'no form of a server that is installed; write "./file.py:server" or "module:server"'),
        ("json", 'is not of the form module:server; write "./file.py:server" or "module:server"'),
    ):
        with pytest.raises(CampusError) as caught:
            await plan({"server": server}, a=None)
        assert str(caught.value).endswith(said)


class Tables(SQLModel, registry=registry()):
    """The tables of a building whose author forgot a step."""


class Tide(Tables, table=True):
    """A table that is there, without the column that came later."""

    id: int = Field(primary_key=True)
    height: float | None = None


STEP = """
import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table("tide", sa.Column("id", sa.Integer(), nullable=False), sa.PrimaryKeyConstraint("id", name="pk_tide"))
"""


async def test_a_column_that_no_step_makes_is_reported_by_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "migrations").mkdir()
    (tmp_path / "migrations" / "0001_first.py").write_text(STEP)
    monkeypatch.setattr(sys.modules[__name__], "__file__", str(tmp_path / "tables.py"))
    async with open_campus(tides=Building(server(free()), tables=Tables)) as campus:
        (sentence,) = (await campus.service.ask("check"))["tides"]
    assert sentence.startswith("in its database the table tide has no column height; write the missing migration: campus migration tides ")


@pytest.mark.parametrize("name", ["CAMPUS_TIDES_TOKEN", "token"])
async def test_a_buildings_test_gives_its_secrets_without_touching_the_environment(name: str) -> None:
    async with open_campus(tides=Building(server(None), settings=Sealed), secrets={name: "hush"}) as campus:
        assert campus.site.settings.token.get_secret_value() == "hush"
    assert "CAMPUS_TIDES_TOKEN" not in os.environ


async def test_a_secret_comes_from_the_environment() -> None:
    made = await plan({"feed_url": "x"}, secrets={"CAMPUS_A_TOKEN": "hush"}, a=Building(server(None), settings=Strict))
    assert made.opened[0].loaded.settings.token.get_secret_value() == "hush"


async def test_the_operator_prices_hides_and_routes_tools() -> None:
    table = {
        "tools": {"*": {"price": "0.5"}, "tool_1": {"free": True, "route": "GET /v1/second"}, "tool_2": {"hidden": True}},
        "scope": "pass",
    }
    made = await plan(table, a=server(None, None, None))
    assert {name: (str(offer.price), offer.access.is_free, offer.scope) for name, offer in made.opened[0].offers.items()} == {
        "tool_0": ("0.50", False, "pass"),
        "tool_1": ("None", True, "pass"),
    }
    assert {operation.name: operation.path for operation in made.opened[0].operations.values()} == {
        "tool_0": "/v1/a/tool_0",
        "tool_1": "/v1/second",
    }


async def test_the_authors_own_server_is_served_with_a_gate_before_its_middleware() -> None:
    entered: list[FastMCP[Any]] = []
    timing = TimingMiddleware()

    @asynccontextmanager
    async def lifespan(mcp: FastMCP[Any]) -> AsyncIterator[dict[str, int]]:
        entered.append(mcp)
        yield {"answer": 42}

    author = server(None, middleware=[timing], lifespan=lifespan)
    author.custom_route("/status", methods=["GET"])(status)
    (opened,) = (await plan(a=author)).opened
    assert opened.server is author
    assert [type(each).__name__ for each in author.middleware] == ["ServerGate", "TimingMiddleware", "DereferenceOnce"]
    async with Client(opened.server):
        assert entered == [author]
    assert [route.path for route in custom_routes(author) if isinstance(route, Route)] == ["/status"]


async def status(request: Request) -> Response:
    """A page of the author's own."""
    return Response("up")


async def test_the_authors_tools_stay_as_they_were() -> None:
    author = server(None, None)
    await plan({"tools": {"tool_0": {"hidden": True}, "*": {"price": "1"}}}, a=author)
    assert [tool.name for tool in await author.list_tools()] == ["tool_0", "tool_1"]
    assert all(not tool.meta or "campus" not in tool.meta for tool in await author.list_tools())


class Die(BaseModel):
    """An argument that is a model, whose schema refers to it."""

    sides: int


async def test_references_in_schemas_are_replaced_once_and_not_in_each_list() -> None:
    author = server(None)

    @author.tool
    def roll(die: Die) -> Die:
        """Roll a die."""
        return die

    opened = (await plan(zoo=author)).opened[0].server
    first, again = [next(tool for tool in await opened.list_tools() if tool.name == "roll") for _ in range(2)]
    assert first is again
    assert first.parameters["properties"]["die"]["properties"]["sides"]["type"] == "integer"
    author.add_tool(Tool.from_function(lambda die: die, name="roll"))
    assert "roll" in [tool.name for tool in await opened.list_tools() if tool.parameters != first.parameters]


async def test_every_tool_of_a_building_without_prices_is_free_or_on_a_local_campus_takes_the_printed_key() -> None:
    made = await plan(a=server(None, None))
    assert all(offer.access is LOCAL_KEY for offer in made.opened[0].offers.values())
    config = made.config.model_copy(update={"server": ServerTable(public_url="https://campus.example", openapi="a")})
    public = await make_plan(config, [Built("a", server(None, None))])
    assert all(offer.access.is_free for offer in public.opened[0].offers.values())


async def test_a_building_may_be_all_free_by_its_own_word() -> None:
    made = await plan(a=server(free(), free()))
    assert made.directory.buildings()[0].free_tier == "everything"


async def test_a_misspelled_tool_in_the_configuration_is_refused_since_it_would_leave_the_tool_open() -> None:
    for word in ({"price": "1"}, {"hidden": True}):
        with pytest.raises(CampusError, match=r"names 'tool_9', but no tool has that name; the tools are: tool_0, tool_1"):
            await plan({"tools": {"tool_9": word}}, a=server(None, None))
        with pytest.raises(CampusError, match=r"names 'tol_\*', but no tool has that name"):
            await plan({"tools": {"tol_*": word}}, a=server(None, None))
    assert await plan({"tools": {"tool_1": {"hidden": True}, "*_0": {"hidden": False}}}, a=server(None, None))
