"""An author's server is served as it is: what its lifespan makes, and what changes while it runs, both frames show at once."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_http_headers
from fastmcp.server.middleware import Middleware, MiddlewareContext
from fastmcp.server.providers import Provider
from fastmcp.server.transforms import Namespace, Transform
from fastmcp.tools import Tool
from patience import patience
from service.conftest import UNLIMITED

from campus import access, free
from campus.testing import TestCampus, open_campus

pytestmark = pytest.mark.anyio
ANSWERS = {"keep": "kept", "gone": "here"}
"""What the server's own two tools answer without arguments."""


def made() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Live")

    @mcp.tool(annotations={"readOnlyHint": True})
    def keep() -> str:
        return "kept"

    @mcp.tool(annotations={"readOnlyHint": True})
    def gone() -> str:
        return "here"

    return mcp


def tool(name: str, answer: str = "new", **options: Any) -> Tool:
    def fn() -> str:
        return answer

    return Tool.from_function(fn, name=name, annotations={"readOnlyHint": True}, **options)


class Shelf(Provider):
    """Tools that come and go."""

    def __init__(self, *tools: Tool) -> None:
        super().__init__()
        self.tools = list(tools)

    async def _list_tools(self) -> Sequence[Tool]:
        return self.tools


class Denies(Middleware):
    """Denies one tool, and leaves it out of lists."""

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        if context.message.name == "gone":
            raise ToolError("not for anybody")
        return await call_next(context)


class Hides(Transform):
    """Hides one tool."""

    async def list_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        return [each for each in tools if each.name != "gone"]

    async def get_tool(self, name: str, call_next: Any, *, version: Any = None) -> Tool | None:
        return None if name == "gone" else await call_next(name, version=version)


def replaced(mcp: FastMCP[Any]) -> None:
    mcp.local_provider.remove_tool("gone")

    @mcp.tool(annotations={"readOnlyHint": True})
    def gone(times: int = 2) -> str:
        """Another signature."""
        return "again" * times


def mounted(mcp: FastMCP[Any]) -> None:
    other: FastMCP[Any] = FastMCP("Other")
    other.add_tool(tool("deep"))
    mcp.mount(other, namespace="other")


Change = Callable[[FastMCP[Any]], object]
CHANGES: Mapping[str, tuple[Change, dict[str, str | None]]] = {
    "added": (lambda mcp: mcp.add_tool(tool("new")), {**ANSWERS, "new": "new"}),
    "removed": (lambda mcp: mcp.local_provider.remove_tool("gone"), {**ANSWERS, "gone": None}),
    "replaced": (replaced, {**ANSWERS, "gone": "againagain"}),
    "disabled": (lambda mcp: mcp.disable(names={"gone"}, components={"tool"}), {**ANSWERS, "gone": None}),
    "mounted": (mounted, {**ANSWERS, "other_deep": "new"}),
    "provided": (lambda mcp: mcp.add_provider(Shelf(tool("new"))), {**ANSWERS, "new": "new"}),
    "hidden": (lambda mcp: mcp.add_transform(Hides()), {**ANSWERS, "gone": None}),
    "renamed": (lambda mcp: mcp.add_transform(Namespace("n")), {"n_keep": "kept", "n_gone": "here", "keep": None, "gone": None}),
}


async def over_http(campus: TestCampus, name: str, building: str = "live") -> str | None:
    response = await campus.http.get(f"/v1/{building}/{name}")
    assert response.status_code in (200, 404), response.text
    return str(response.json()["result"]) if response.status_code == 200 else None


async def over_mcp(campus: TestCampus, name: str, building: str = "live") -> str | None:
    async with campus.mcp(building) as client:
        result = await client.call_tool(name, raise_on_error=False)
    assert not result.is_error or "Unknown tool" in str(result.content), result
    return None if result.is_error else str(result.data)


async def agree(campus: TestCampus, expected: Mapping[str, str | None], building: str = "live") -> None:
    names = sorted(name for name, answer in expected.items() if answer is not None)
    for name, answer in expected.items():
        assert (await over_http(campus, name, building), await over_mcp(campus, name, building)) == (answer, answer), (building, name)
    async with campus.mcp(building) as client:
        assert sorted(each.name for each in await client.list_tools()) == names, building
    paths = (await campus.http.get(f"/{building}/openapi.json")).json()["paths"]
    assert sorted(path.rpartition("/")[2] for path in paths) == names, building
    assert sorted(each["name"] for each in (await campus.http.get(f"/v1/{building}")).json()["tools"]) == names, building
    for name, answer in expected.items():
        assert (await campus.http.get(f"/tools/{building}/{name}")).status_code == (404 if answer is None else 200), (building, name)


async def test_what_changes_while_it_runs_is_seen_by_both_frames_at_once() -> None:
    servers = {name: made() for name in CHANGES}
    async with open_campus(**servers, tables=UNLIMITED) as campus:
        for name, (do, expected) in CHANGES.items():
            await agree(campus, ANSWERS, name)
            do(servers[name])
            await agree(campus, expected, name)
        servers["disabled"].enable(names={"gone"}, components={"tool"})
        await agree(campus, ANSWERS, "disabled")


async def made_with(change: Change, *, of: FastMCP[Any] | None = None) -> FastMCP[Any]:
    """A server with the tools of another one, which its lifespan changes."""

    @asynccontextmanager
    async def lifespan(server: FastMCP[Any]) -> AsyncIterator[None]:
        change(server)
        yield

    mcp: FastMCP[Any] = FastMCP("Live", lifespan=lifespan)
    for each in await (made() if of is None else of).list_tools():
        mcp.add_tool(each)
    return mcp


async def test_what_a_lifespan_makes_is_served_also_if_that_is_all() -> None:
    servers = {name: await made_with(change) for name, (change, _) in CHANGES.items()}
    all_of_it = await made_with(lambda server: server.add_tool(tool("new")), of=FastMCP("Empty"))
    async with open_campus(**servers, all_of_it=all_of_it, tables=UNLIMITED) as campus:
        for name, (_, expected) in CHANGES.items():
            await agree(campus, expected, name)
        await agree(campus, {"new": "new"}, "all_of_it")


async def test_what_a_mounted_server_or_a_provider_adds_and_drops_is_served_at_once_and_listed_within_a_second() -> None:
    mcp = made()
    other: FastMCP[Any] = FastMCP("Other")
    shelf = Shelf(tool("shelved"))
    mcp.mount(other, namespace="other")
    mcp.add_provider(shelf)
    async with open_campus(live=mcp) as campus:
        await agree(campus, {**ANSWERS, "shelved": "new"})
        other.add_tool(tool("deep"))
        shelf.tools.clear()
        for name, answer in {"other_deep": "new", "shelved": None}.items():
            assert (await over_http(campus, name), await over_mcp(campus, name)) == (answer, answer), name
        await anyio.sleep(1.1)
        await agree(campus, {**ANSWERS, "other_deep": "new", "shelved": None})


async def test_middleware_that_denies_a_tool_denies_it_in_both_frames() -> None:
    by_lifespan, later = await made_with(lambda server: server.middleware.insert(0, Denies())), made()
    async with open_campus(early=by_lifespan, later=later) as campus:
        assert await over_http(campus, "gone", "later") == "here"
        later.add_middleware(Denies())
        for building in ("early", "later"):
            denied = await campus.http.get(f"/v1/{building}/gone")
            assert (denied.status_code, denied.json()["detail"]) == (400, "not for anybody"), building
            async with campus.mcp(building) as client:
                with pytest.raises(ToolError, match="not for anybody"):
                    await client.call_tool("gone")
            assert await over_http(campus, "keep", building) == "kept"


class Breaks(Middleware):
    """Cannot list anything."""

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        raise RuntimeError("no list today")


async def test_a_changed_server_that_cannot_be_listed_is_asked_for_every_call_until_it_can(caplog: pytest.LogCaptureFixture) -> None:
    mcp = made()
    broken = Breaks()
    async with open_campus(live=mcp, other=made()) as campus:
        mcp.add_middleware(broken)
        mcp.add_middleware(Denies())
        assert await over_http(campus, "keep") == "kept"
        assert (await campus.http.get("/v1/live/gone")).json()["detail"] == "not for anybody"
        assert (await campus.http.get("/v1/other/keep")).status_code == (await campus.http.get("/v1/other")).status_code == 200
        assert "no list today" in caplog.text
        mcp.middleware.remove(broken)
        assert (await campus.http.get("/v1/live/gone")).json()["detail"] == "not for anybody"
        async with campus.mcp() as client:
            assert [each.name for each in await client.list_tools()] == ["keep", "gone"]


class ForFriends(Transform):
    """Shows one tool to friends only, and another one to strangers only."""

    def may_see(self, name: str) -> bool:
        is_friend = get_http_headers().get("x-friend") == "yes"
        return is_friend if name == "gone" else not is_friend if name == "strange" else True

    async def list_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        return [each for each in tools if self.may_see(each.name)]

    async def get_tool(self, name: str, call_next: Any, *, version: Any = None) -> Tool | None:
        return await call_next(name, version=version) if self.may_see(name) else None


async def test_a_tool_that_some_callers_are_shown_answers_them_alone_in_both_frames() -> None:
    mcp = made()
    mcp.add_tool(tool("strange"))
    mcp.add_transform(ForFriends())
    friend = {"x-friend": "yes"}
    async with open_campus(live=mcp) as campus:
        for headers, gone, strange in (({}, 404, 200), (friend, 200, 404), ({}, 404, 200)):
            assert (await campus.http.get("/v1/live/gone", headers=headers)).status_code == gone
            assert (await campus.http.get("/v1/live/strange", headers=headers)).status_code == strange
            async with campus.mcp(headers=headers) as client:
                shown = {each.name for each in await client.list_tools()}
                assert ("gone" in shown, "strange" in shown) == (gone == 200, strange == 200)
                for name, status in (("gone", gone), ("strange", strange)):
                    assert (await client.call_tool(name, raise_on_error=False)).is_error is (status == 404)


async def test_a_tool_added_without_a_price_where_others_have_one_takes_a_key(caplog: pytest.LogCaptureFixture) -> None:
    mcp: FastMCP[Any] = FastMCP("Live")
    mcp.add_tool(tool("priced", meta=access()))
    mcp.add_tool(tool("open", meta=free()))
    async with open_campus(live=mcp) as campus:
        mcp.add_tool(tool("new"))
        refused = await campus.http.get("/v1/live/new")
        assert (refused.status_code, "nobody declared its price" in refused.json()["detail"]) == (402, True)
        async with campus.mcp() as client:
            assert (await client.call_tool("new", raise_on_error=False)).is_error
        assert (await campus.http.get("/v1/live/open")).status_code == 200
        assert "new declare neither access() nor free()" in caplog.text
        shown = (await campus.http.get("/v1/live")).json()["tools"]
        assert {each["name"]: each["tier"] for each in shown} == {"priced": "key", "open": "free", "new": "key"}


async def test_a_tool_that_cannot_be_served_is_left_out_and_the_others_stay(caplog: pytest.LogCaptureFixture) -> None:
    mcp = made()
    async with open_campus(live=mcp) as campus:
        mcp.add_tool(tool("clash", meta={"twins": {"route": "GET /v1/live/keep"}}))
        mcp.add_tool(tool("broken", meta={"twins": {"route": "no route"}}))
        for name, answer in ANSWERS.items():
            assert await over_http(campus, name) == answer
        assert [vars(record)["tool"] for record in caplog.records if "tool is not served" in record.getMessage()][:1] == ["broken"]
        assert (await campus.http.get("/live/openapi.json")).json()["paths"].keys() == {"/v1/live/keep", "/v1/live/gone"}


async def test_the_same_server_in_two_campuses_knows_by_the_call_which_one_was_asked() -> None:
    mcp: FastMCP[Any] = FastMCP("Live")
    mcp.add_tool(tool("thing"))
    async with open_campus(one=mcp, tools={"thing": {"key": "opens"}}) as one, open_campus(two=mcp) as two:
        assert (await one.call("thing")).status == 402
        assert (await two.call("thing")).status == 200
        for campus, is_refused in ((one, True), (two, False)):
            async with campus.mcp() as client:
                [listed] = await client.list_tools()
                assert ("Needs a key" in (listed.description or "")) is is_refused
                assert (await client.call_tool("thing", raise_on_error=False)).is_error is is_refused


class Stuck(Provider):
    """It lists nothing, and from some time on does not answer."""

    is_stuck = False

    async def _list_tools(self) -> Sequence[Tool]:
        if self.is_stuck:
            await anyio.sleep_forever()
        return []


async def test_a_server_that_does_not_answer_when_it_is_listed_delays_no_address_of_another() -> None:
    mcp, other, stuck = made(), made(), Stuck()
    mcp.add_provider(stuck)
    async with open_campus(live=mcp, other=other) as campus:
        stuck.is_stuck = True
        await anyio.sleep(2)  # it was looked at, and found to be slow
        with anyio.fail_after(patience(5)):
            for path, status in {"/v1/other/keep": 200, "/v1/other/unknown": 404, "/nothing": 404, "/tools/other/keep": 200}.items():
                assert (await campus.http.get(path)).status_code == status, path
            other.add_tool(tool("new"))
            assert (await campus.http.get("/v1/other/new")).status_code == 200


async def test_a_tool_with_the_address_of_a_page_is_left_out_and_later_changes_are_seen() -> None:
    mcp = made()
    async with open_campus(live=mcp) as campus:
        page = await campus.http.get("/", headers={"accept": "text/html"})
        mcp.add_tool(tool("clash", meta={"twins": {"route": "GET /"}}))
        assert (await campus.http.get("/v1/live/keep")).status_code == 200
        mcp.add_middleware(Denies())
        assert (await campus.http.get("/v1/live/gone")).status_code == 400
        assert (await campus.http.get("/", headers={"accept": "text/html"})).status_code == page.status_code


async def test_however_many_tools_some_callers_are_shown_the_others_stay_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campus.paywall.gate.MOST_FOUND", 1)
    mcp = made()
    mcp.add_tool(tool("strange"))
    mcp.add_transform(ForFriends())
    shelf = Shelf(tool("first"), tool("second"))
    mcp.add_provider(shelf)
    async with open_campus(live=mcp) as campus:
        friend = {"x-friend": "yes"}
        for name in ("gone", "keep", "gone", "first", "second", "keep"):
            assert (await campus.http.get(f"/v1/live/{name}", headers=friend)).status_code == 200, name
        assert (await campus.http.get("/v1/live/strange")).status_code == 200
