"""How a tool declares its route, and which routes are errors."""

from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.utilities.tasks import TaskConfig

from twins import Twins, operation_of, operations_of, route

pytestmark = pytest.mark.anyio


def one_tool(function: Any, **options: Any) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("zoo")
    server.tool(**options)(function)
    return server


async def feed(animal: str, food: str = "hay", secret: str = "") -> str:
    """Feed an animal."""
    return f"{animal} eats {food}"


def test_a_route_is_plain_data_without_default_values() -> None:
    assert route("/v1/x") == {"twins": {"route": "/v1/x"}}
    assert route("GET|POST /v1/{id}", query={"secret": "s"}, status=201, cache="public") == {
        "twins": {"route": "GET|POST /v1/{id}", "query": {"secret": "s"}, "status": 201, "cache": "public"}
    }


@pytest.mark.parametrize(
    ("options", "methods", "path"),
    [
        ({}, ("POST",), "/v1/zoo/feed"),
        ({"annotations": {"readOnlyHint": True}}, ("GET",), "/v1/zoo/feed"),
        ({"meta": route("/animals")}, ("POST",), "/animals"),
        ({"meta": route("/animals/{animal}"), "annotations": {"readOnlyHint": True}}, ("GET",), "/animals/{animal}"),
        ({"meta": route("GET|POST /animals/{animal}/{food}.json")}, ("GET", "POST"), "/animals/{animal}/{food}.json"),
        ({"meta": {"other": 1}}, ("POST",), "/v1/zoo/feed"),
        ({"name": "feed: Löwe {2}/x"}, ("POST",), "/v1/zoo/feed:-L-we--2-/x"),
    ],
)
async def test_a_tool_is_served_at_its_route_or_at_the_default_path(options: Any, methods: Any, path: str) -> None:
    (operation,) = (await Twins.open(one_tool(feed, **options))).operations
    assert (operation.methods, operation.path) == (methods, path)


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        (route("GET /a/{cage}"), ["'feed'", "cage", "animal, food, secret"]),
        (route("GET /a/{animal}/{animal}"), ["'feed'", "{animal} twice"]),
        (route("FETCH /a"), ["FETCH", "GET, POST, PUT, PATCH, DELETE"]),
        (route("HEAD /a"), ["HEAD", "leave HEAD out"]),
        (route("GET|GET /a"), ["twice"]),
        (route("get /a"), ["'get'"]),
        (route("a"), ["'a'", "start it with a slash"]),
        (route("GET /a/{animal"), ["/a/{animal"]),
        (route("GET /a?x=1"), ["/a?x=1"]),
        (route("GET /a b"), ["cannot be read"]),
        *((route("GET /a", status=status), [str(status), "from 200 to 299"]) for status in (204, 304, 99)),
        ({"twins": {"status": "201"}}, ["'201'", "from 200 to 299"]),
        (route("GET /a", query={"weapon": "w"}), ["weapon", "animal, food, secret"]),
        (route("GET /a", query={"secret": "food"}), ["two of its arguments", "'food'"]),
        (route("GET /a/{animal}", query={"animal": "a"}), ["which is sent in the path"]),
        ({"twins": {"route": "GET /a", "querry": {}}}, ["querry"]),
    ],
)
async def test_a_route_that_cannot_be_served_is_an_error_that_names_the_tool(meta: Any, words: list[str]) -> None:
    with pytest.raises(ValueError, match="'feed'") as refused:
        await Twins.open(one_tool(feed, meta=meta))
    for word in words:
        assert word in str(refused.value)


async def test_a_list_in_the_path_is_refused() -> None:
    async def pick(items: list[int]) -> int:
        return len(items)

    with pytest.raises(ValueError, match="a path holds one plain value"):
        await Twins.open(one_tool(pick, meta=route("GET /pick/{items}")))


async def test_two_tools_on_one_route_are_refused_by_name() -> None:
    server = one_tool(feed, meta=route("GET /a/{animal}"))

    @server.tool(meta=route("GET|POST /a/{animal}"))
    async def pet(animal: str) -> str:
        """Pet an animal."""
        return animal

    with pytest.raises(ValueError, match=r'route "GET /a/{animal}" is used by the tool feed \(zoo\) and the tool pet \(zoo\)'):
        await Twins.open(server)


async def test_one_path_with_two_names_for_its_placeholder_is_refused() -> None:
    server = one_tool(feed, meta=route("GET /a/{animal}"))

    @server.tool(meta=route("POST /a/{beast}"))
    async def pet(beast: str) -> str:
        """Pet an animal."""
        return beast

    with pytest.raises(ValueError, match="have one path with different placeholder names"):
        await Twins.open(server)


async def test_a_tool_with_auth_is_refused_since_it_would_be_hidden() -> None:
    with pytest.raises(ValueError, match="'feed' has auth="):
        await Twins.open(one_tool(feed, auth=lambda context: False))


async def test_a_tool_that_only_runs_in_the_background_is_refused() -> None:
    with pytest.raises(ValueError, match="'feed' runs only as a background task"):
        await Twins.open(one_tool(feed, task=TaskConfig(mode="required")))


async def test_the_caller_chooses_which_tools_are_served_and_as_what() -> None:
    server = one_tool(feed)
    server.tool(name="other")(feed)
    tool = (await operations_of(server))[0].tool.model_copy(update={"meta": route("/fed")})
    twins = Twins.of(server, [operation_of(tool, server="zoo", default_prefix="/v1/zoo")])
    assert [operation.path for operation in twins.operations] == ["/fed"]


async def test_the_newest_version_of_a_tool_is_served() -> None:
    server: FastMCP[Any] = FastMCP("zoo")
    for version in ("1", "10", "9"):
        server.tool(name="feed", version=version)(feed)
    (operation,) = (await Twins.open(server)).operations
    assert operation.tool.version == "10"


async def test_a_disabled_tool_has_no_twin() -> None:
    server = one_tool(feed)
    server.disable(names={"feed"})
    assert (await Twins.open(server)).operations == ()
