"""Mistakes of a building's author are errors where it is declared or opened, each a sentence with its remedy."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import FastMCP
from fastmcp.utilities.types import Image
from pydantic import BaseModel
from sqlmodel import SQLModel
from starlette.requests import Request
from starlette.responses import Response

from campus import Building, Caller, Check, CurrentSite, Job, Page, Problem, Service, Settings, Site, route
from campus.catalog.loader import find
from campus.checks import Warned
from campus.errors import CampusError
from campus.testing import Built, open_campus
from campus.testing.campus import Frame

pytestmark = pytest.mark.anyio
READ_ONLY = {"readOnlyHint": True}
HOURLY = timedelta(hours=1)


async def works(site: Site) -> list[str]:
    """A job, a service, a check."""
    return []


async def board(request: Request, site: Site) -> Response:
    """A page."""
    return Response("up")


def tides(site: Site) -> None:
    """It is not async."""


async def alone() -> None:
    """It does not take the site."""


async def awaited(site: Site) -> int:
    """A state that nobody would await."""
    return 1


class Plain(BaseModel):
    """Settings that are not campus's."""


class Shared(SQLModel):
    """A base whose tables every other building would have too."""


class Gauge:
    """What JSON cannot express."""


def server(**options: Any) -> FastMCP[Any]:
    """A server with a tool."""
    mcp: FastMCP[Any] = FastMCP("Test", **options)
    mcp.tool(levels, annotations=READ_ONLY, meta=route("GET /v1/levels/{port}"))
    return mcp


def levels(port: str) -> str:
    """A tool."""
    return port


DECLARED: dict[str, tuple[Callable[[], object], str]] = {
    "a job that is not async": (lambda: Job(tides), "the job tides is not async; write async def tides(site)"),
    "a job that takes nothing": (
        lambda: Job(alone),
        "the job alone takes (), and campus calls it with (site); write async def alone(site)",
    ),
    "a scheduled job that takes more": (lambda: Job(board, every=HOURLY), "campus calls it with (site); write async def board(site)"),
    "a job of a number": (lambda: Job(works, every=3600), "the job works has every=3600; write every=timedelta(hours=1)"),  # type: ignore[arg-type]  # on purpose
    "a job that is no function": (lambda: Job(42), "the job is 42, which cannot be called"),  # type: ignore[arg-type]  # on purpose
    "a job everywhere": (lambda: Job(works, on="all"), "on='all' is unknown; the values are: 'one', 'each'"),  # type: ignore[arg-type]  # on purpose
    "a service that takes nothing": (lambda: Service(alone), "the service alone takes ()"),
    "a check that is not async": (lambda: Check(tides), "the check tides is not async"),  # type: ignore[arg-type]  # on purpose
    "a check at no time": (lambda: Check(works, on="Ready"), "the values are: 'check', 'ready', 'audit'"),  # type: ignore[arg-type]  # on purpose
    "a page of the site alone": (lambda: Page("GET /x", works), "write async def works(request, site)"),  # type: ignore[arg-type]  # on purpose
    "a page without a slash": (lambda: Page("GET v1/x", board), "'GET v1/x' is not the route of a page"),
    "a page of an unknown method": (lambda: Page("FETCH /v1/x", board), "'FETCH /v1/x' is not the route of a page"),
    "a link to a placeholder": (lambda: Page("GET /x/{port}", board, label="X"), "the navigation cannot link to a placeholder"),
    "jobs that are functions": (lambda: Building(server(), jobs=[works]), "jobs= takes Job(…) only, not <function works"),  # type: ignore[list-item]  # on purpose
    "a job without a list": (lambda: Building(server(), jobs=Job(works)), "jobs= takes a list; write jobs=[Job(…)]"),  # type: ignore[arg-type]  # on purpose
    "two jobs of a name": (lambda: Building(server(), jobs=[Job(works), Job(works)]), "two jobs have the name works"),
    "pages that are routes": (lambda: Building(server(), pages=["GET /x"]), "pages= takes Page(…) only"),  # type: ignore[list-item]  # on purpose
    "a server in a list": (lambda: Building([server()]), "a Building begins with its FastMCP server"),  # type: ignore[arg-type]  # on purpose
    "settings of pydantic": (lambda: Building(server(), settings=Plain), "derived from campus.Settings"),  # type: ignore[arg-type]  # on purpose
    "settings that are made": (lambda: Building(server(), settings=Settings()), "derived from campus.Settings"),  # type: ignore[arg-type]  # on purpose
    "SQLModel's own tables": (lambda: Building(server(), tables=SQLModel), "class Tables(SQLModel, registry=registry())"),
    "tables that all share": (lambda: Building(server(), tables=Shared), "class Tables(SQLModel, registry=registry())"),
    "a state that is a value": (lambda: Building(server(), state={}), "state= takes a function (site)"),  # type: ignore[arg-type]  # on purpose
    "a state that is async": (lambda: Building(server(), state=awaited), "the state awaited is async, and campus does not await it"),
    "facts that are not async": (lambda: Building(server(), facts=tides), "the facts tides is not async"),  # type: ignore[arg-type]  # on purpose
    "a problem that is none": (lambda: Problem(200, "no_tides", "there are none"), "needs a status from 400 to 599"),
    "a code with a blank": (lambda: Problem(404, "No tides", "there are none"), "then a code such as no_city"),
}


@pytest.mark.parametrize("case", DECLARED, ids=str)
def test_a_declaration_that_cannot_work_is_an_error_with_its_remedy(case: str) -> None:
    declare, said = DECLARED[case]
    with pytest.raises((TypeError, ValueError)) as caught:
        declare()
    assert said in str(caught.value)


class Imported:
    """An entry point whose module runs `declare` when it is imported."""

    name = "tides"

    def __init__(self, declare: Callable[[], object]) -> None:
        self.load = declare


def takes_site(site: Site) -> str:
    """The default of the parameter is missing."""
    return site.name


def takes_site_class(site: Site[Settings] = CurrentSite) -> str:  # type: ignore[assignment]  # on purpose: it is not called
    """The default of the parameter is not called."""
    return site.name


def takes_caller(caller: Caller) -> str:
    """A caller would say himself who he is."""
    return caller.address


def takes_gauge(gauge: Gauge) -> str:
    """No caller can send this."""
    return "x"


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        (takes_site, "callers cannot send a Site; give the parameter its default: site: Site = CurrentSite()"),
        (takes_site_class, "callers cannot send a Site; give the parameter its default: site: Site = CurrentSite()"),
        (takes_caller, "callers cannot send a Caller; give the parameter its default: caller: Caller = CurrentCaller()"),
        (takes_gauge, "Gauge'>; give the parameter a type that JSON can express, such as a pydantic model"),
    ],
)
def test_a_parameter_that_no_caller_can_send_is_reported_with_the_line_of_the_tool(tool: Callable[..., str], said: str) -> None:
    with pytest.raises(CampusError) as caught:
        find("tides", [Imported(lambda: FastMCP("Test").tool(tool))])
    assert str(caught.value).startswith("building 'tides' cannot be imported: ")
    assert said in str(caught.value)
    assert f"(at {__file__}:" in str(caught.value)


def draws(gauge: int = 1) -> Gauge:
    """Its result has no JSON form."""
    return Gauge()


def pictures() -> Image:
    """Its result is a file."""
    return Image(data=b"x", format="png")


@asynccontextmanager
async def broken(mcp: Any) -> AsyncIterator[None]:
    """What cannot be entered."""
    raise ConnectionError("no route to the tide gauge")
    yield


def also(tool: Callable[..., object], **options: Any) -> FastMCP[Any]:
    mcp = server()
    mcp.tool(tool, annotations=READ_ONLY, **options)
    return mcp


OPENED: dict[str, tuple[Any, str]] = {
    "a result without a JSON form": (
        also(draws),
        "tool 'draws' of building 'a' returns Gauge, which has no JSON form; return a pydantic model",
    ),
    "another name of the placeholder": (
        also(lambda town: town, name="towns", meta=route("GET /v1/levels/{town}")),
        "have one path with different placeholder names, /v1/levels/{port} and /v1/levels/{town}; use the same names",
    ),
    "a page at the MCP endpoint": (
        Building(server(), pages=[Page("GET /a/mcp", board)]),
        'route "GET /a/mcp" is used by the MCP endpoint of a and a page of a; give one of them a different route',
    ),
    "a state that cannot be made": (
        Building(server(), state=broken),
        f"building 'a' cannot make its state: ConnectionError: no route to the tide gauge (at {__file__}:",
    ),
    "a server that cannot start": (
        server(lifespan=broken),
        f"the server of building 'a' cannot start: ConnectionError: no route to the tide gauge (at {__file__}:",
    ),
}


@pytest.mark.parametrize("case", OPENED, ids=str)
async def test_a_building_that_cannot_be_opened_is_named_with_the_remedy(case: str) -> None:
    building, said = OPENED[case]
    with pytest.raises(CampusError) as caught:
        async with open_campus(a=building):
            pass
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


async def shouts(site: Site) -> str:
    """A check that returns a sentence, whose letters would be findings."""
    return "the gauge is broken"


async def text(request: Request, site: Site) -> str:
    """A page that is no response."""
    return "up"


async def test_what_only_a_call_shows_is_in_the_log_with_its_remedy(caplog: pytest.LogCaptureFixture) -> None:
    pages = [Page("GET /tides", text)]  # type: ignore[arg-type]  # on purpose
    bare = also(pictures)
    bare.tool(lambda: "up", name="bare", title="Bare", annotations=READ_ONLY)
    async with open_campus(a=Building(bare, checks=[Check(shouts)], pages=pages)) as campus:
        assert (await campus.service.ask("check"))["a"] == [
            "the check shouts failed: TypeError; the cause is in the log",
            "no description: bare; agents choose a tool by it, so write what it does and what comes back as its docstring",
        ]
        assert (await campus.http.get("/tides")).status_code == 500
        assert (await campus.call("pictures")).data["content"][0]["mimeType"] == "image/png"
        with pytest.raises(TypeError, match=r"the route of levels, GET /v1/levels/\{port\}, needs port"):
            await campus.call("levels")
    assert "the check shouts returned 'the gauge is broken'; return a list of sentences, empty if all is well" in caplog.text
    assert "the page /tides returned a str; return site.page(…), or a Response" in caplog.text


async def test_the_check_names_tools_that_clients_refuse() -> None:
    mcp: FastMCP[Any] = FastMCP("Names")
    for name in ("fine_name-1", "a.dot", "a/slash", "a blank", "x" * 65):
        mcp.tool(lambda: "up", name=name, description="Say so.", annotations=READ_ONLY)
    async with open_campus(a=Building(mcp)) as campus:
        (found,) = [each for each in (await campus.service.ask("check"))["a"] if "clients refuse" in each]
    said = "refuse tools named 'a blank', 'a.dot', 'a/slash' and 1 more: a name may have 1 to 64 of the characters a-z, A-Z, 0-9, _ and -"
    assert said in found
    assert isinstance(found, Warned)


async def test_a_template_that_cannot_be_read_is_found_by_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "tides.html").write_text("<h1>Tides</h1>\n{% if high %}")
    (tmp_path / "pages_of_tides.py").write_text("async def board(request, site): ...")
    monkeypatch.syspath_prepend(tmp_path)
    pages = [Page("GET /tides", import_module("pages_of_tides").board)]
    async with open_campus(a=Building(server(), pages=pages)) as campus:
        (found,) = (await campus.service.ask("check"))["a"]
    assert found.startswith("its template tides.html cannot be read: line 2: ")


def test_two_packages_with_a_building_of_one_name_are_both_named() -> None:
    installed = [EntryPoint("tides", f"{module}:building", "campus.buildings") for module in ("json", "tomllib")]
    with pytest.raises(CampusError, match="several installed packages have a building 'tides': json:building, tomllib:building; uninstall"):
        find("tides", installed)


def test_an_entry_point_of_another_kind_says_what_it_must_name() -> None:
    with pytest.raises(CampusError, match="names a type; it must name a Building or a FastMCP server"):
        find("tides", [Built("tides", Building)])


UNSAYABLE = Gauge()


class Level(BaseModel):
    """A level of water."""

    port: str
    metres: float


@pytest.mark.filterwarnings("ignore:Default value")
async def test_what_a_signature_leaves_unsaid_is_found_by_the_check_with_file_and_line() -> None:
    server: FastMCP[Any] = FastMCP("Tides")

    @server.tool(annotations=READ_ONLY)
    def level(port, since: Any = UNSAYABLE):  # type: ignore[no-untyped-def]  # on purpose
        """The level."""
        return 1

    async with open_campus(a=Building(server)) as campus:
        place = f"{__file__}:{level.__code__.co_firstlineno}"
        assert (await campus.service.ask("check"))["a"] == [
            f"the tool level ({place}) takes anything as port: write type hints, which callers are held to",
            f"the tool level ({place}) does not say what it returns: write a type hint, so that callers get a schema",
            f"the tool level ({place}) has defaults that JSON cannot say: since; callers are not told them",
        ]


@pytest.mark.parametrize("frame", ["http", "mcp"])
async def test_a_result_that_is_not_what_its_tool_publishes_fails_the_authors_test(frame: Frame) -> None:
    server: FastMCP[Any] = FastMCP("Tides")

    @server.tool(annotations=READ_ONLY)
    def level(port: str) -> Level:
        """The level."""
        return Level.model_construct(port=port, metres="secret") if port == "Hull" else Level(port=port, metres=1)

    async with open_campus(a=Building(server), frame=frame) as campus:
        assert (await campus.call("level", port="Dover")).data == {"port": "Dover", "metres": 1.0}

    async def author_tests() -> None:
        async with open_campus(a=Building(server), frame=frame) as campus, campus.mcp() as client:
            assert (await client.call_tool_mcp("level", {"port": "Hull"})).is_error, "seen by no call of the test's own"

    with pytest.raises(AssertionError, match=r"(?s)level: a tool's result is not what it publishes: /metres: it is not of type"):
        await author_tests()


@pytest.mark.parametrize("frame", ["http", "mcp"])
async def test_a_tool_that_holds_the_event_loop_is_named_in_the_log_with_its_line_once_a_minute(
    frame: Frame, caplog: pytest.LogCaptureFixture
) -> None:
    server: FastMCP[Any] = FastMCP("Tides")

    @server.tool(annotations=READ_ONLY)
    async def level(port: str) -> str:
        """The level."""
        time.sleep(1)  # noqa: ASYNC251  # on purpose
        return port

    @server.tool(annotations=READ_ONLY)
    def depth(port: str) -> str:
        """The depth, from a thread."""
        time.sleep(1)
        return port

    async with open_campus(a=Building(server), frame=frame) as campus, campus.services():
        await anyio.wait_all_tasks_blocked()
        for name in ("level", "level", "depth"):
            assert (await campus.call(name, port="Hull")).status == 200
    held = [record for record in caplog.records if record.name == "campus.observability.stalls"]
    line = level.__code__.co_firstlineno + 3
    assert [(vars(record)["tool"], vars(record)["at"]) for record in held] == [("level", f"{__file__}:{line}")]
