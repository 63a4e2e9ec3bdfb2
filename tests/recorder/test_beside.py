"""A second process that watches and delivers on the same data, beside a server."""

import anyio
import pytest
from patience import patience
from recorder.receivers import Receiver
from recorder.recorders import Recorder

from buildings.recorder.runtime import watch

pytestmark = pytest.mark.anyio


async def test_a_watch_by_hand_sends_nothing_that_a_server_is_sending(on_each_database: Recorder, receiver: Receiver) -> None:
    site = on_each_database.campus.site
    await on_each_database.beat(await on_each_database.register(receiver.url("/served")), status="fail")
    assert len(await site.state.dispatcher.claim()) == 1, "the server is sending it"
    await on_each_database.beat(await on_each_database.register(receiver.url("/new")), status="fail")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, site)
        with anyio.fail_after(patience(60)):
            while not receiver.requests:  # noqa: ASYNC110  # what is waited for comes over a socket
                await anyio.sleep(0.02)
        await site.state.dispatcher.deliver_due()
        tasks.cancel_scope.cancel()
    assert [one.json["monitor"]["name"] for one in receiver.requests] == ["worker"]
    assert [one.path for one in receiver.requests] == ["/new"]
