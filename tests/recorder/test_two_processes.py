"""Two processes on one database: the second sends nothing that the first is sending."""

import anyio
import pytest
from patience import patience
from recorder.receivers import Receiver
from recorder.recorders import OpenRecorder

from buildings.recorder.runtime import watch

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases, pytest.mark.faults("leader killed")]


async def test_a_second_process_sends_nothing_that_the_first_is_sending(
    open_recorder: OpenRecorder, storage_url: str, receiver: Receiver
) -> None:
    async with open_recorder(storage=storage_url) as first, open_recorder(storage=storage_url, clock=first.clock) as second:
        await first.beat(await first.register(receiver.url("/served")), status="fail")
        assert len(await first.campus.site.state.dispatcher.claim()) == 1, "the first is sending it"
        await first.beat(await first.register(receiver.url("/new")), status="fail")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch, second.campus.site)
            with anyio.fail_after(patience(60)):
                while not receiver.requests:  # noqa: ASYNC110  # what is waited for comes over a socket
                    await anyio.sleep(0.02)
            await second.deliver()
            tasks.cancel_scope.cancel()
    assert [(one.path, one.json["monitor"]["name"]) for one in receiver.requests] == [("/new", "worker")]
