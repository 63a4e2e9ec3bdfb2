"""Who made a monitor, changed it or took it over last is known, and monitors go on without: their silence would be worse."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from cve.test_makers import press
from features.connect.chat_app import HTML, ORIGIN, ChatApp, result_of
from recorder.receivers import Receiver
from recorder.recorders import OpenRecorder, Recorder

from tests import patient

pytestmark = pytest.mark.anyio
CONNECT = {"server": {"public_url": ORIGIN, "openapi": "recorder"}, "connect": {}}


@asynccontextmanager
async def connected(recorder: Recorder, key: str) -> AsyncIterator[ChatApp]:
    async with patient.AsyncClient(transport=httpx.ASGITransport(recorder.campus.app), base_url=ORIGIN) as http:
        app = ChatApp(http, building="recorder")
        assert "It may also make monitors. These go on when you disconnect it or your key is revoked" in (await app.page()).text
        await app.connect(key)
        yield app


async def by_client(app: ChatApp, tool: str, **arguments: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = result_of(await app.ask("tools/call", name=tool, arguments=arguments))["structuredContent"]
    return found


async def makers(recorder: Recorder, key: str) -> dict[str, tuple[str, bool]]:
    fleet = (await recorder.call("fleet_status", key=key)).data["monitors"]
    return {one["name"]: (one["made_by"]["name"] or one["made_by"]["id"], one["made_by"]["ended"]) for one in fleet}


async def holdings(recorder: Recorder, key: str) -> dict[str, tuple[str, str]]:
    shown = (await recorder.campus.http.get("/keys", headers={"Authorization": f"Bearer {key}"})).json()
    assert {one["building"] for one in shown["holdings"]} <= {"recorder"}
    return {one["name"]: (one["kind"], one["state"]) for one in shown["holdings"]}


async def test_monitors_of_a_disconnected_client_go_on_and_their_owner_sees_keeps_and_ends_them(
    open_recorder: OpenRecorder, receiver: Receiver
) -> None:
    async with open_recorder(tables=CONNECT) as recorder:
        made, key = await recorder.campus.service.keys.issue("recorder")
        headers = HTML | {"Authorization": f"Bearer {key}"}
        async with connected(recorder, key) as app:
            theirs = await by_client(app, "register_monitor", name="theirs", alert_webhook=receiver.url("/theirs"))
            taken = await recorder.register(receiver.url("/taken"), key=key, name="taken")
            moved = await recorder.register(receiver.url("/mine"), key=key, name="moved")
            await recorder.register(receiver.url("/mine"), key=key, name="mine")
            await by_client(app, "update_monitor", monitor_id=moved["monitor_id"], alert_webhook=receiver.url("/moved"))
            await recorder.beat(taken, status="fail")
            await by_client(app, "takeover", monitor_id=taken["monitor_id"])
            client, own = ("Chat app", False), (made.id, False)
            assert await makers(recorder, key) == {"theirs": client, "taken": client, "moved": client, "mine": own}
            assert "client Chat app" in (await recorder.campus.http.get("/recorder", headers=headers)).text
            (connected_client,) = (await app.http.get("/keys", headers={"Authorization": f"Bearer {key}"})).json()["clients"]
            await press(app, "/keys/disconnect", key=key, client=connected_client["id"])

            client = ("Chat app", True)
            assert await makers(recorder, key) == {"theirs": client, "taken": client, "moved": client, "mine": own}
            watched = f"monitor, webhook https://localhost:{receiver.port}/…", "unclaimed"
            owned = {"theirs": watched, "taken": watched, "moved": watched, "mine": (watched[0], "active")}
            assert await holdings(recorder, key) == owned
            for page in ("/recorder", f"/recorder/{theirs['monitor_id']}"):
                text = (await recorder.campus.http.get(page, headers=headers)).text
                assert ("client Chat app, disconnected" in text, 'href="/keys"' in text) == (True, True), page
            await recorder.beat(theirs)
            await recorder.pass_time(hours=2)
            await recorder.sweep()
            await recorder.deliver()
            assert "/theirs" in {request.path for request in receiver.requests}, "it is watched as before"

            before = await recorder.row(theirs)
            await press(app, "/keys/holdings", key=key, building="recorder", id=theirs["monitor_id"], action="keep")
            assert (await recorder.row(theirs))._asdict() == before._asdict() | {"made_by": made.id}, "nothing else changes"
            await press(app, "/keys/holdings", key=key, building="recorder", id=moved["monitor_id"], action="end")
            assert await makers(recorder, key) == {"theirs": own, "taken": client, "mine": own}


async def test_who_has_no_key_of_the_owner_is_no_maker_and_a_revoked_key_is_named(recorder: Recorder, receiver: Receiver) -> None:
    keys = recorder.campus.service.keys
    (leaked, token), stranger = await keys.issue("recorder"), await recorder.campus.key("recorder")
    monitor = await recorder.register(receiver.url("/mine"), key=token, name="mine")
    free = await recorder.register(receiver.url("/free"), name="free")
    new, key = await keys.rotate(leaked.id)
    of_monitor = {"monitor_id": monitor["monitor_id"], "secret": monitor["secret"]}
    for by in ({}, {"key": stranger}):
        assert (await recorder.call("update_monitor", **of_monitor, name="renamed", **by)).status == 200
    assert (await recorder.call("update_monitor", monitor_id=free["monitor_id"], secret=free["secret"], name="f")).status == 200
    assert (await recorder.row(free)).made_by is None
    assert await makers(recorder, key) == {"renamed": (leaked.id, False)}, "a rotation alone ends nothing that was made"
    await keys.revoke(leaked.id)
    assert await makers(recorder, key) == {"renamed": (leaked.id, True)}
    assert await holdings(recorder, key) == {"renamed": (f"monitor, webhook https://localhost:{receiver.port}/…", "unclaimed")}
    assert (await recorder.call("update_monitor", monitor_id=monitor["monitor_id"], key=key, name="kept")).status == 200
    assert await makers(recorder, key) == {"kept": (new.id, False)}
