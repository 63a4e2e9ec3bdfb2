"""Races: concurrent calls for what only some of them can get, to one recorder or to several on one database."""

from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import anyio
from recorder.recorders import Recorder

from campus.testing import Reply

TARGET = "https://localhost/hook"


async def at_once(recorders: Sequence[Recorder], tool: str, asked: Sequence[dict[str, Any]]) -> list[Reply]:
    replies: list[Reply] = []

    async def ask(recorder: Recorder, arguments: dict[str, Any]) -> None:
        replies.append(await recorder.call(tool, **arguments))

    async with anyio.create_task_group() as tasks:
        for recorder, arguments in zip(cycle(recorders), asked, strict=False):
            tasks.start_soon(ask, recorder, arguments)
    return replies


async def twenty_of(asked: int, recorders: Sequence[Recorder]) -> None:
    key = await recorders[0].campus.key("recorder")
    wanted = [{"name": f"m{number}", "alert_webhook": TARGET, "key": key} for number in range(asked)]
    replies = await at_once(recorders, "register_monitor", wanted)
    assert Counter((reply.status, reply.code) for reply in replies) == {(200, None): 20, (409, "monitor_limit_reached"): asked - 20}
    fleet = (await recorders[0].call("fleet_status", key=key, limit=20)).data
    assert len(fleet["monitors"]) == 20
    await recorders[0].call("delete_monitor", monitor_id=fleet["monitors"][0]["monitor_id"], key=key)
    again = [await recorders[0].call("register_monitor", name="again", alert_webhook=TARGET, key=key) for _ in range(2)]
    assert [reply.status for reply in again] == [200, 409]


async def one_of_two_registrations(recorders: Sequence[Recorder], *, rounds: int) -> None:
    for number in range(rounds):
        registrations = [{"name": "a", "alert_webhook": f"https://localhost/{number}"}] * 2
        replies = await at_once(recorders, "register_monitor", registrations)
        refused = [(reply.status, reply.code) for reply in replies if reply.status != 200]
        assert refused == [(409, "target_in_use")], number


async def one_of_five_takeovers(recorders: Sequence[Recorder], *, rounds: int) -> None:
    key = await recorders[0].campus.key("recorder")
    monitor = await recorders[0].register("https://localhost/taken", key=key)
    for fence in range(1, rounds + 1):
        await recorders[0].pass_time(hours=2)  # dead, whether or not a sweep has found it
        replies = await at_once(recorders, "takeover", [{"monitor_id": monitor["monitor_id"], "key": key}] * 5)
        assert Counter((reply.status, reply.code) for reply in replies) == {(200, None): 1, (409, "not_dead"): 4}
        assert next(reply.data["fence"] for reply in replies if reply.status == 200) == fence
        assert [kind for kind, _ in await recorders[0].alerts(monitor)][-2:] == ["dead", "recovered"]
