"""What a key owns in the recorder that goes on after its calls: monitors, with where their alerts go."""

from functools import partial

from buildings.recorder.monitors.fleet import read_fleet
from buildings.recorder.problems import MONITORS_PER_KEY
from buildings.recorder.runtime import RecorderSite
from campus.building import Holding, ToolCall
from campus.caller import Key
from campus.storage import in_snapshot


async def monitors_of(site: RecorderSite, key: Key) -> list[Holding]:
    """The key's monitors. To keep one is to change its name to the one that it has."""
    page = partial(read_fleet, lineage=key.lineage, after="", limit=MONITORS_PER_KEY, url=site.url, now=site.state.time.now())
    fleet = await in_snapshot(site.storage, page)
    return [
        Holding(
            id=monitor.monitor_id,
            kind=", ".join(["monitor", *(f"{target.kind} {target.address}" for target in monitor.targets)]),
            name=monitor.name,
            made_at=monitor.registered_at,
            made_by=monitor.made_by.id,
            end=ToolCall("delete_monitor", {"monitor_id": monitor.monitor_id}),
            keep=ToolCall("update_monitor", {"monitor_id": monitor.monitor_id, "name": monitor.name}),
        )
        for monitor in fleet.monitors
    ]
