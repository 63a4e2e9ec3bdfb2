"""Access to free and paid tools: the same answers and refusals over HTTP and MCP."""

from datetime import timedelta
from typing import Any

import pytest
from fastmcp import FastMCP

from campus import Building, access, free, route
from campus.testing import Clock, Frame, open_campus

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]
SENTINEL = "paid-for-and-delivered"
DAY = {"day": "2026-01-02"}


async def test_a_free_tool_answers_without_a_key_and_with_any(shop: Building, frame: Frame) -> None:
    async with open_campus(frame=frame, shop=shop, other=shop_named("other")) as campus:
        for key in (None, "shop", "other", "all", "campus_live_nonsense"):
            reply = await campus.call("sample", key=key)
            assert (reply.status, reply.data) == (200, {"text": "free", "day": None})


async def test_a_paid_tool_without_access_names_every_way_in_before_it_looks_at_arguments(shop: Building, frame: Frame) -> None:
    async with open_campus(frame=frame, shop=shop) as campus:
        for arguments in (DAY, {"day": "nonsense"}, {"day": "2026-01-02", "unknown": "1"}):
            reply = await campus.call("text_of", **arguments)
            assert (reply.status, reply.code) == (402, "access_required")
            assert [(one["product"], one["scope"]) for one in reply.data["unlock"]] == [("shop", "shop"), ("all", "all")]
            assert "Authorization: Bearer" in reply.data["detail"]
            assert SENTINEL not in str(reply.data)


async def test_a_shared_link_may_carry_tracking_parameters_where_it_is_free_and_cached_only() -> None:
    mcp: FastMCP[Any] = FastMCP("Press")
    for name, kept in (("cached", "public, max-age=60"), ("uncached", None), ("sold", "public, max-age=60")):

        def read(day: str = "today") -> str:
            """The news."""
            return day

        meta = route(f"GET /v1/press/{name}", cache=kept) | (access() if name == "sold" else free())
        mcp.tool(read, name=name, annotations={"readOnlyHint": True}, meta=meta)
    async with open_campus(press=mcp) as campus:
        key = {"Authorization": f"Bearer {await campus.key('press')}"}
        for name, tracked in (("cached", 200), ("uncached", 422), ("sold", 422)):
            for query, status in (("day=monday", 200), ("day=monday&utm_source=mail&fbclid=x", tracked), ("utm_source=mail&dya=x", 422)):
                answer = await campus.http.get(f"/v1/press/{name}?{query}", headers=key)
                assert answer.status_code == status, (name, query, answer.text)


@pytest.mark.parametrize("product", ["shop", "all"])
async def test_a_key_of_the_scope_or_of_all_opens_it(shop: Building, frame: Frame, product: str) -> None:
    async with open_campus(frame=frame, shop=shop) as campus:
        reply = await campus.call("text_of", key=product, **DAY)
        assert (reply.status, reply.data) == (200, {"text": SENTINEL, "day": "2026-01-02"})
        reply = await campus.call("plain", key=product, words=["a", "b"])
        assert reply.data == [SENTINEL, "a", "b"]


async def test_a_key_of_another_scope_is_refused_by_the_name_of_the_one_to_add(shop: Building, frame: Frame) -> None:
    async with open_campus(frame=frame, shop=shop, other=shop_named("other")) as campus:
        for tool in ("text_of", "whoami"):
            reply = await campus.call(tool, key="other", **(DAY if tool == "text_of" else {}))
            assert (reply.status, reply.code) == (403, "insufficient_scope")
            assert "shop" in [one["product"] for one in reply.data["unlock"]]
            assert "scope other" in reply.data["detail"]


async def test_a_key_opens_until_its_end_and_not_after(shop: Building, frame: Frame) -> None:
    clock = Clock()
    async with open_campus(frame=frame, clock=clock, shop=shop) as campus:
        key = await campus.key("shop")
        clock.move(timedelta(days=30) - timedelta(seconds=1))
        assert (await campus.call("text_of", key=key, **DAY)).status == 200
        clock.move(timedelta(seconds=1))
        reply = await campus.call("text_of", key=key, **DAY)
        assert (reply.status, reply.code) == (402, "key_expired")
        assert (await campus.call("sample", key=key)).status == 200


async def test_a_revoked_key_and_an_unknown_one_get_different_answers(shop: Building, frame: Frame) -> None:
    async with open_campus(frame=frame, shop=shop) as campus:
        key = await campus.key("shop")
        await campus.service.keys.revoke(key)
        assert (await campus.call("text_of", key=key, **DAY)).code == "key_revoked"
        assert (await campus.call("text_of", key="campus_live_" + "a" * 38, **DAY)).code == "key_unknown"


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        ("{key}", "access_required", "Authorization header is not of the form 'Bearer KEY'"),
        ("Basic Og==", "access_required", "Authorization header is not of the form 'Bearer KEY'"),
        ("Bearer", "key_unknown", "has no key after Bearer"),
        ("Bearer  ", "key_unknown", "has no key after Bearer"),
    ],
)
async def test_a_header_that_holds_no_key_is_named(shop: Building, sent: str, code: str, said: str) -> None:
    async with open_campus(shop=shop) as campus:
        header = {"Authorization": sent.format(key=await campus.key("shop"))}
        refused = (await campus.http.get("/v1/shop/text/2026-01-02", headers=header)).json()
        assert (refused["code"], said in refused["detail"]) == (code, True), refused


async def test_an_all_key_bought_before_a_building_was_added_opens_it(shop: Building, frame: Frame, storage_url: str) -> None:
    async with open_campus(frame=frame, storage=storage_url, shop=shop) as campus:
        key = await campus.key("all")
    async with open_campus(frame=frame, storage=storage_url, shop=shop_named("shop"), added=shop_named("added")) as campus:
        assert (await campus.call("text_of", building="added", key=key, **DAY)).status == 200


async def test_a_tool_sees_who_calls(shop: Building, frame: Frame) -> None:
    async with open_campus(frame=frame, shop=shop) as campus:
        assert (await campus.call("whoami")).data == {"key": "", "frame": frame, "site": "shop"}
        assert (await campus.call("whoami", key="all")).data == {"key": "all", "frame": frame, "site": "shop"}
        assert (await campus.call("whoami", key="campus_live_gone")).data["key"] == ""


async def test_an_ignored_key_is_mentioned(shop: Building) -> None:
    async with open_campus(shop=shop) as campus:
        reply = await campus.call("sample", key="campus_live_gone")
        assert "key_unknown" in reply.headers["warning"]
        assert "warning" not in (await campus.call("sample", key="shop")).headers


async def test_bad_arguments_are_the_same_refusal_on_both_frames(shop: Building) -> None:
    refusals: list[Any] = []
    for frame in ("http", "mcp"):
        async with open_campus(frame=frame, shop=shop) as campus:  # type: ignore[arg-type]  # a literal out of a tuple
            for arguments in ({"text": "x", "count": "many"}, {"text": "x", "surplus": 1}, {}):
                reply = await campus.call("write_text", key="shop", **arguments)
                assert (reply.status, reply.code) == (422, "invalid_request")
                assert "many" not in str(reply.data)
                refusals.append([sorted(reply.data), reply.data["title"], [error["code"] for error in reply.data["errors"]]])
                assert all(name in reply.data["detail"] for name in ({"text"} ^ arguments.keys()))
    assert refusals[:3] == refusals[3:]


async def test_a_crash_keeps_its_text_to_itself(shop: Building, frame: Frame) -> None:
    async with open_campus(frame=frame, shop=shop) as campus:
        reply = await campus.call("crash", key="shop")
        assert (reply.status, reply.code) == (500, "internal_error")
        assert "secret-of-the-crash" not in str(reply.data)


async def test_a_refusal_by_the_tool_is_the_same_problem_on_both_frames(shop: Building, frame: Frame) -> None:
    async with open_campus(frame=frame, shop=shop) as campus:
        reply = await campus.call("text_of", key="shop", day="1999-01-01")
        assert (reply.status, reply.code, reply.data["detail"]) == (404, "no_text", "there is no text of that day")


def shop_named(name: str) -> Building:
    from fastmcp import FastMCP

    from campus import access, free, route

    mcp = FastMCP(name)

    @mcp.tool(meta=route(f"GET /v1/{name}/text/{{day}}") | access(price="0.02"))
    async def text_of(day: str) -> str:
        """The sentence of a day."""
        return SENTINEL

    @mcp.tool(meta=free())
    async def sample() -> str:
        """A free sample."""
        return "free"

    return Building(mcp)
