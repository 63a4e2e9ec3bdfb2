"""HEAD, OPTIONS and 405; the table of routes, also of several servers."""

from typing import Any

import pytest
from fastmcp import FastMCP

from twins import RouteEntry, RouteTable, Twins, route

pytestmark = pytest.mark.anyio


def server() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("methods")

    @mcp.tool(meta=route("GET|POST /both"), annotations={"readOnlyHint": True})
    async def both() -> str:
        """Both."""
        return "both"

    @mcp.tool(meta=route("DELETE /things/{id}"))
    async def remove(id: str) -> str:
        """Remove."""
        return f"removed {id}"

    @mcp.tool(meta=route("PUT /things/{id}"))
    async def put(id: str, value: int) -> str:
        """Put."""
        return f"{id}={value}"

    @mcp.tool(meta=route("GET /things/first"), annotations={"readOnlyHint": True})
    async def first() -> str:
        """The first one."""
        return "first"

    return mcp


async def test_head_calls_no_tool_that_may_change_something(fronts: Any) -> None:
    mcp: FastMCP[Any] = FastMCP("counting")
    counted: list[str] = []

    @mcp.tool(meta=route("GET|POST /counted"))
    async def count() -> str:
        """Count one more."""
        counted.append("one")
        return "counted"

    async with fronts(mcp) as each:
        head = await each.http.head("/counted")
        assert (head.status_code, head.headers["allow"], head.content) == (405, "GET, POST, OPTIONS", b"")
        assert (await each.http.get("/counted")).status_code == 200
    assert counted == ["one"]


async def test_every_get_answers_head_with_the_same_headers_and_no_body(fronts: Any) -> None:
    async with fronts(server()) as each:
        got, head = await each.http.get("/both"), await each.http.head("/both")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers == got.headers
        assert head.headers["content-length"] == str(len(got.content))


async def test_a_head_that_fails_has_no_body_either(fronts: Any) -> None:
    async with fronts(server()) as each:
        head = await each.http.head("/both?unknown=1")
        assert (head.status_code, head.content) == (422, b"")
        assert int(head.headers["content-length"]) > 0


async def test_options_and_405_list_the_methods_of_a_path(fronts: Any) -> None:
    async with fronts(server()) as each:
        for path, allowed in (
            ("/both", "GET, POST, HEAD, OPTIONS"),
            ("/things/x", "DELETE, PUT, OPTIONS"),
            ("/things/first", "GET, HEAD, OPTIONS"),
        ):
            options = await each.http.options(path)
            assert (options.status_code, options.headers["allow"], options.content) == (204, allowed, b"")
            refused = await each.http.patch(path)
            assert (refused.status_code, refused.headers["allow"]) == (405, allowed)
            assert refused.json()["code"] == "method_not_allowed"
            assert refused.headers["content-type"] == "application/problem+json"


async def test_one_path_may_belong_to_several_tools_and_other_paths_have_no_route(fronts: Any) -> None:
    async with fronts(server()) as each:
        assert (await each.http.delete("/things/a")).json() == {"result": "removed a"}
        assert (await each.http.put("/things/a", json={"value": 1})).json() == {"result": "a=1"}
        for path in ("/nothing", "/things", "/things/", "/things/a/b", "/both/", "//both", "/BOTH", "/openapi.json/"):
            assert (await each.http.get(path)).status_code == 404, path


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Stands for whatever is served."""


def entry(spec: str, name: str) -> RouteEntry:
    methods, path = spec.split()
    return RouteEntry(tuple(methods.split("|")), path, app, name)


FOUND: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("/a", "/a", {}),
    ("/a/b", "/a/b", {}),
    ("/a/c", "/a/{x}", {"x": "c"}),
    ("/a/c.svg", "/a/{x}.svg", {"x": "c"}),
    ("/a/.svg", "/a/{x}", {"x": ".svg"}),
    ("/a/b/d", "/a/b/{y}", {"y": "d"}),
    ("/a/c/d", "/a/{x}/d", {"x": "c"}),
    ("/a/c/e-f", "/a/{x}/{y}-{z}", {"x": "c", "y": "e", "z": "f"}),
    ("/a/\n", "/a/{x}", {"x": "\n"}),
    ("/a/+(x)", "/a/+(x)", {}),
)


def test_the_most_specific_path_wins_in_any_order() -> None:
    paths = ["/a/{x}", "/a/{x}/{y}-{z}", "/a/{x}/d", "/a/b/{y}", "/a/{x}.svg", "/a/b", "/a", "/a/+(x)"]
    for order in (paths, paths[::-1]):
        table = RouteTable([RouteEntry(("GET",), each, app, each) for each in order])
        for path, found, params in FOUND:
            endpoint, got = table.find(path) or pytest.fail(f"nothing is found at {path}")
            assert (endpoint.path, got) == (found, params)


def test_a_path_without_a_route_is_not_found() -> None:
    assert RouteTable([entry("GET /a/{x}", "a")]).find("/b") is None
    assert RouteTable().find("/") is None


async def test_two_servers_with_one_route_cannot_be_in_one_table() -> None:
    one, two = await Twins.open(server(), name="one"), await Twins.open(server(), name="two")
    with pytest.raises(ValueError, match=r'route "GET /things/first" is used by the tool first \(one\) and the tool first \(two\)'):
        RouteTable([*one.table.entries, *two.table.entries])
