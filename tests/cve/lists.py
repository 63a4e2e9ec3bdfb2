"""A campus whose daily lists a test makes, and the key about whose watches it calls."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from campus.testing import Clock, Reply, TestCampus

KEV = "/kev.json"
CISCO = {"vendorProject": "Cisco", "product": "IOS XE"}


@dataclass
class Lists:
    """A campus whose lists the test makes, a day each, and the key whose watches it calls about."""

    campus: TestCampus
    clock: Clock
    publisher: Any
    make: Any
    key: str

    async def with_own_key(self) -> "Lists":
        """The same lists, with a key of its own."""
        return replace(self, key=await self.campus.key("cve"))

    async def call(self, tool: str, /, **arguments: Any) -> Reply:
        return await self.campus.call(tool, key=arguments.pop("key", self.key), **arguments)

    async def watch(self, **arguments: Any) -> dict[str, Any]:
        reply = await self.call("create_watch", **{"name": "mine", **arguments})
        assert reply.status == 200, reply.data
        found: dict[str, Any] = reply.data
        return found

    def publish(self, *listed: tuple[str, dict[str, Any]]) -> None:
        entries = [self.make.kev_entry(cve_id, self.clock().date(), **more) for cve_id, more in listed]
        released = self.clock().strftime("%Y-%m-%dT%H:%M:%S.000Z")
        self.publisher.put(KEV, self.make.kev_catalog([*entries, *self.make.listings(40)], released=released))

    async def next_list(self, *listed: tuple[str, dict[str, Any]], days: int = 1) -> None:
        self.clock.move(timedelta(days=days))
        self.publish(*listed)
        await self.campus.run("refresh", accept=True)

    async def deliver(self) -> int:
        sent: int = await self.campus.site.state.watching.dispatcher.deliver_due()
        return sent

    async def news(self, since: int = 0, **arguments: Any) -> list[tuple[str, list[str]]]:
        items, more = [], True
        while more:
            answer = (await self.call("watch_news", since=since, **arguments)).data
            since, more = answer["next"], answer["more"]
            items += answer["news"]
        return [(item["name"], [entry["cve_id"] for entry in item["entries"]]) for item in items]
