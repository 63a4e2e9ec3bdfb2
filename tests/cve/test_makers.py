"""What outlives a call ends with whoever made it: feed addresses and watches of a disconnected client and of a leaked key."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from cve.lists import CISCO, Lists
from features.connect.chat_app import HTML, ORIGIN, ChatApp, result_of

from tests import patient

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]
CONNECT = {"server": {"public_url": ORIGIN, "openapi": "cve"}, "connect": {}}


@asynccontextmanager
async def connected(lists: Lists) -> AsyncIterator[ChatApp]:
    async with patient.AsyncClient(transport=httpx.ASGITransport(lists.campus.app), base_url=ORIGIN) as http:
        app = ChatApp(http, building="cve")
        page = await app.page()
        assert "It may also make feed addresses and watches. These stop when you disconnect it" in page.text
        await app.connect(lists.key)
        yield app


async def by_client(app: ChatApp, tool: str, **arguments: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = result_of(await app.ask("tools/call", name=tool, arguments=arguments))["structuredContent"]
    return found


async def reads(lists: Lists, feed: Mapping[str, Any]) -> bool:
    answer = await lists.campus.http.get(urlsplit(feed["urls"]["csv"]).path)
    assert answer.status_code == 200 or answer.json()["code"] == "no_such_feed"
    return answer.status_code == 200


async def states(lists: Lists, tool: str, **arguments: Any) -> dict[str, tuple[str, str, bool]]:
    answer = (await lists.call(tool, **arguments)).data
    return {
        one.get("name") or one["label"]: (one["state"], one["made_by"]["name"] or one["made_by"]["kind"], one["made_by"]["ended"])
        for one in answer.get("watches") or answer["feeds"]
    }


async def press(app: ChatApp, path: str, *, key: str, **form: str) -> None:
    headers = HTML | {"Authorization": f"Bearer {key}"}
    page = (await app.http.get("/keys", headers=headers)).text
    assert all(f'value="{value}"' in page for value in form.values()), "the page has that button"
    token = re.search(r'name="form_token" value="(\w+)"', page)
    assert token is not None
    answer = await app.http.post(path, data={"form_token": token[1], **form}, headers=headers)
    assert (answer.status_code, answer.headers["location"]) == (303, "/keys")


async def test_what_a_client_made_stops_when_it_is_disconnected_and_goes_on_when_the_owner_keeps_it(
    open_lists, receiver, storage_url
) -> None:
    async with open_lists(storage=storage_url, tables=CONNECT) as lists, connected(lists) as app:
        theirs = await by_client(app, "create_feed_url", label="theirs")
        mine = (await lists.call("create_feed_url", label="mine")).data
        watch = await by_client(app, "create_watch", name="theirs", vendors=["Cisco"], alert_webhook=receiver.url("/theirs"))
        await lists.watch(name="mine", vendors=["cisco"], alert_webhook=receiver.url("/mine"))
        assert await states(lists, "list_feed_urls") == {"theirs": ("active", "Chat app", False), "mine": ("active", "key", False)}
        assert await states(lists, "list_watches") == {"theirs": ("active", "Chat app", False), "mine": ("active", "key", False)}
        keyed = {"Authorization": f"Bearer {lists.key}"}
        shown = (await lists.campus.http.get("/keys", headers=keyed)).json()
        assert {one["made_by"]["name"] for one in shown["holdings"]} == {"Chat app", None}
        await lists.next_list(("CVE-2026-7001", CISCO))
        await press(app, "/keys/disconnect", key=lists.key, client=shown["clients"][0]["id"])

        assert (await reads(lists, theirs), await reads(lists, mine)) == (False, True)
        assert await states(lists, "list_feed_urls") == {"theirs": ("stopped", "Chat app", True), "mine": ("active", "key", False)}
        assert await states(lists, "list_watches") == {"theirs": ("stopped", "Chat app", True), "mine": ("active", "key", False)}
        await lists.campus.run("pause_watches")
        await lists.deliver()
        await lists.next_list(("CVE-2026-7002", CISCO))
        await lists.deliver()
        assert [request.path for request in receiver.requests] == ["/mine", "/mine"], "what waited for the client is not sent either"

        await press(app, "/keys/holdings", key=lists.key, building="cve", id=watch["watch_id"], action="keep")
        assert (await lists.call("keep_feed_url", feed_id=theirs["feed_id"])).status == 200
        assert await states(lists, "list_watches") == {"theirs": ("active", "key", False), "mine": ("active", "key", False)}
        assert await reads(lists, theirs)
        await lists.next_list(("CVE-2026-7003", CISCO))
        await lists.deliver()
        assert sorted(request.path for request in receiver.requests[2:]) == ["/mine", "/theirs"]
        await press(app, "/keys/holdings", key=lists.key, building="cve", id=theirs["feed_id"], action="end")
        assert not await reads(lists, theirs)


async def test_what_a_leaked_key_made_stops_when_it_is_revoked_and_a_rotation_alone_stops_nothing(open_lists, receiver) -> None:
    async with open_lists(tables=CONNECT) as lists, connected(lists) as app:
        keys, leaked = lists.campus.service.keys, lists.key
        owners = (await lists.call("create_feed_url", label="owner's")).data
        of_client = await by_client(app, "create_feed_url", label="client's")
        lists.key = (await keys.rotate(leaked[:24])).token
        assert await reads(lists, of_client), "a rotation alone ends nothing that was made"
        thiefs = (await lists.call("create_feed_url", label="thief's", key=leaked)).data
        later = (await lists.call("create_feed_url", label="later")).data
        kept = await lists.watch(name="owner's", vendors=["Cisco"], alert_webhook=receiver.url("/owner"))
        await lists.watch(name="mine", vendors=["cisco"])
        await lists.call("update_watch", key=leaked, watch_id=kept["watch_id"], alert_webhook=receiver.url("/thief"))
        await lists.next_list(("CVE-2026-7001", CISCO))
        assert all([await reads(lists, one) for one in (owners, of_client, thiefs, later)])
        await keys.revoke(leaked[:24])

        assert [await reads(lists, one) for one in (owners, of_client, thiefs, later)] == [False, False, False, True]
        assert (await lists.call("keep_feed_url", key=leaked, feed_id=thiefs["feed_id"])).code == "key_revoked"
        assert await states(lists, "list_watches") == {"owner's": ("stopped", "key", True), "mine": ("active", "key", False)}
        await lists.campus.run("pause_watches")
        await lists.next_list(("CVE-2026-7002", CISCO))
        assert await lists.deliver() == 0
        assert receiver.requests == []
        for feed in (owners, later):
            assert (await lists.call("keep_feed_url", feed_id=feed["feed_id"])).data == {"ok": True, "feed_id": feed["feed_id"]}
        await lists.call("revoke_feed_url", feed_id=thiefs["feed_id"])
        assert [await reads(lists, one) for one in (owners, of_client, thiefs, later)] == [True, False, False, True]
        other = await lists.campus.key("cve")
        assert (await lists.call("keep_feed_url", key=other, feed_id=of_client["feed_id"])).code == "no_such_feed"
