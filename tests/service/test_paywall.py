"""Access to free and paid tools: the same answers and refusals over HTTP and MCP."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fastmcp import FastMCP
from service.conftest import FRAMES, SENTINEL, shop_named

from campus import Building, access, free, route
from campus.testing import Clock, TestCampus, open_campus

pytestmark = pytest.mark.anyio
DAY = {"day": "2026-01-02"}


async def test_a_free_tool_answers_without_a_key_and_with_any(framed_shop: TestCampus) -> None:
    for key in (None, "shop", "other", "all", "campus_live_nonsense"):
        reply = await framed_shop.call("sample", key=key)
        assert (reply.status, reply.data) == (200, {"text": "free", "day": None})


async def test_a_paid_tool_without_access_names_every_way_in_before_it_looks_at_arguments(framed_shop: TestCampus) -> None:
    for arguments in (DAY, {"day": "nonsense"}, {"day": "2026-01-02", "unknown": "1"}):
        reply = await framed_shop.call("text_of", **arguments)
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


async def test_a_key_of_the_scope_or_of_all_opens_it(framed_shop: TestCampus) -> None:
    for product in ("shop", "all"):
        reply = await framed_shop.call("text_of", key=product, **DAY)
        assert (reply.status, reply.data) == (200, {"text": SENTINEL, "day": "2026-01-02"})
        assert (await framed_shop.call("plain", key=product, words=["a", "b"])).data == [SENTINEL, "a", "b"]


async def test_a_key_of_another_scope_is_refused_by_the_name_of_the_one_to_add(framed_shop: TestCampus) -> None:
    for tool, arguments in (("text_of", DAY), ("whoami", {})):
        reply = await framed_shop.call(tool, key="other", **arguments)
        assert (reply.status, reply.code) == (403, "insufficient_scope")
        assert "shop" in [one["product"] for one in reply.data["unlock"]]
        assert "scope other" in reply.data["detail"]


async def test_a_key_opens_until_its_end_and_not_after(shop: Building) -> None:
    clock = Clock()
    async with open_campus(clock=clock, shop=shop) as campus:
        key = await campus.key("shop")
        both = [replace(campus, frame=frame) for frame in FRAMES]
        clock.move(timedelta(days=30) - timedelta(seconds=1))
        assert [(await one.call("text_of", key=key, **DAY)).status for one in both] == [200, 200]
        clock.move(timedelta(seconds=1))
        for one in both:
            reply = await one.call("text_of", key=key, **DAY)
            assert (reply.status, reply.code) == (402, "key_expired")
            assert (await one.call("sample", key=key)).status == 200


async def test_a_revoked_key_and_an_unknown_one_get_different_answers(framed_shop: TestCampus) -> None:
    key = await framed_shop.key("shop")
    await framed_shop.service.keys.revoke(key)
    assert (await framed_shop.call("text_of", key=key, **DAY)).code == "key_revoked"
    assert (await framed_shop.call("text_of", key="campus_live_" + "a" * 38, **DAY)).code == "key_unknown"


async def test_a_header_that_holds_no_key_is_named(open_shop: TestCampus) -> None:
    no_bearer, no_key = "Authorization header is not of the form 'Bearer KEY'", "has no key after Bearer"
    for sent, code, said in (
        (await open_shop.key("shop"), "access_required", no_bearer),
        ("Basic Og==", "access_required", no_bearer),
        ("Bearer", "key_unknown", no_key),
        ("Bearer  ", "key_unknown", no_key),
    ):
        refused = (await open_shop.http.get("/v1/shop/text/2026-01-02", headers={"Authorization": sent})).json()
        assert (refused["code"], said in refused["detail"]) == (code, True), refused


async def test_an_all_key_bought_before_a_building_was_added_opens_it(shop: Building, storage_url: str) -> None:
    async with open_campus(storage=storage_url, shop=shop) as campus:
        key = await campus.key("all")
    async with open_campus(storage=storage_url, shop=shop, added=shop_named("added")) as campus:
        for frame in FRAMES:
            assert (await replace(campus, frame=frame).call("text_of", building="added", key=key, **DAY)).status == 200


async def test_a_tool_sees_who_calls(framed_shop: TestCampus) -> None:
    for key, seen in ((None, ""), ("all", "all"), ("campus_live_gone", "")):
        assert (await framed_shop.call("whoami", key=key)).data == {"key": seen, "frame": framed_shop.frame, "site": "shop"}


async def test_an_ignored_key_is_mentioned(open_shop: TestCampus) -> None:
    reply = await open_shop.call("sample", key="campus_live_gone")
    assert "key_unknown" in reply.headers["warning"]
    assert "warning" not in (await open_shop.call("sample", key="shop")).headers


async def test_bad_arguments_are_the_same_refusal_on_both_frames(open_shop: TestCampus) -> None:
    for arguments in ({"text": "x", "count": "many"}, {"text": "x", "surplus": 1}, {}):
        refusals = []
        for frame in FRAMES:
            reply = await replace(open_shop, frame=frame).call("write_text", key="shop", **arguments)
            assert (reply.status, reply.code) == (422, "invalid_request")
            assert "many" not in str(reply.data)
            assert all(name in reply.data["detail"] for name in ({"text"} ^ arguments.keys()))
            refusals.append([sorted(reply.data), reply.data["title"], [error["code"] for error in reply.data["errors"]]])
        assert refusals[0] == refusals[1]


async def test_a_crash_keeps_its_text_to_itself_and_a_refusal_by_the_tool_is_told(framed_shop: TestCampus) -> None:
    reply = await framed_shop.call("crash", key="shop")
    assert (reply.status, reply.code) == (500, "internal_error")
    assert "secret-of-the-crash" not in str(reply.data)
    reply = await framed_shop.call("text_of", key="shop", day="1999-01-01")
    assert (reply.status, reply.code, reply.data["detail"]) == (404, "no_text", "there is no text of that day")
