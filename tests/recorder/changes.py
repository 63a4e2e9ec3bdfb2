"""Changes of a monitor as tests make them: by its secret, or by the key that is among the changes."""

from typing import Any

from recorder.recorders import Recorder

from campus.testing import Reply


async def ask(recorder: Recorder, monitor: dict[str, Any], **changes: Any) -> Reply:
    who = {} if "key" in changes else {"secret": monitor["secret"]}
    return await recorder.call("update_monitor", **{"monitor_id": monitor["monitor_id"], **who, **changes})


async def update(recorder: Recorder, monitor: dict[str, Any], **changes: Any) -> dict[str, Any]:
    reply = await ask(recorder, monitor, **changes)
    assert reply.status == 200, reply.data
    found: dict[str, Any] = reply.data
    return found
