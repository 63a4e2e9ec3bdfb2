"""Callers of a campus's processes: beats with capsules, registrations, keys, free, keyed and paid calls; and what was acknowledged."""

import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from secrets import token_hex
from time import monotonic
from typing import Any

import anyio
import httpx
from features.payments.seller import PAY_TO
from patience import patience
from serving import Served

from campus.features.chain import Facilitator, Payer, headers_of, receipt_of, terms_of
from tests import patient

CONFIG = """
openapi = "recorder"
public_url = "https://campus.example"
[storage]
url = "{storage}"
[web]
allowed_hosts = ["localhost"]
[limits]
free = "off"
unpaid = "off"
[payments]
network = "{network}"
pay_to = "{pay_to}"
facilitators = ["{facilitators[0]}"]
rpc_url = "{rpc_url}"
[products.recorder]
scope = "recorder"
price = "19"
term = "30 days"
[buildings.recorder]
shared_hosts = ["localhost"]
registrations_per_minute = 6000
monitors_per_host = 100000
[buildings.paid]
server = "features.payments.slow_tool:mcp"
tools = {{ "*" = {{ price = "0.02" }} }}
[buildings.gratis]
server = "features.payments.slow_tool:mcp"
tools = {{ "*" = {{ free = true }} }}
"""
WRITES = ("beat", "registration", "key", "paid call")
MONITORS = 4
"""Beaten at each process, twice a second, the most that a monitor accepts."""
PAUSES = {"beat": 0.55, "registration": 0.5, "key": 2.0, "paid call": 3.0, "keyed call": 0.3, "free call": 0.3}
"""Seconds between a caller's calls."""
RETRY_SECONDS = 0.2
LOOK_SECONDS = 0.02
CALL_SECONDS = 60
"""No call may take longer: then it hangs."""


def config_of(storage: str, facilitator: Facilitator) -> str:
    return CONFIG.format(storage=storage, **facilitator.table(PAY_TO))


@dataclass
class Acknowledged:
    """What callers were told is stored: each monitor's last seq and number of beats, and ids; the nonces of answered payments."""

    last_seq: dict[str, int] = field(default_factory=dict)
    beats: Counter[str] = field(default_factory=Counter)
    monitors: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    payments: set[str] = field(default_factory=set)


@dataclass
class MixedLoad:
    """The callers. `successes` are times of answers, by kind of call and process; `refusals` are counted by kind and reason."""

    campuses: Sequence[Served]
    payer: Payer
    acknowledged: Acknowledged = field(default_factory=Acknowledged)
    successes: dict[tuple[str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    stopping: bool = False

    async def run(self) -> None:
        [owner] = json.loads(self.campuses[0].command("key", "issue", "recorder", "--json").stdout)
        async with AsyncExitStack() as stack, anyio.create_task_group() as callers:
            for number, campus in enumerate(self.campuses):
                options: Any = {"base_url": campus.url, "timeout": patience(CALL_SECONDS), "verify": False}
                client = await stack.enter_async_context(patient.AsyncClient(**options))
                for _ in range(MONITORS):
                    monitor = (await client.post("/v1/recorder/monitors", json=_monitor(), headers=_bearer(owner["key"]))).json()
                    callers.start_soon(self._beat, client, number, monitor)
                callers.start_soon(self._repeat, "registration", number, partial(self._register, client))
                callers.start_soon(self._repeat, "key", number, partial(self._change_keys, campus))
                callers.start_soon(self._pay, client, number)
                fleet = partial(client.get, "/v1/recorder/fleet", headers=_bearer(owner["key"]))
                callers.start_soon(self._repeat, "keyed call", number, fleet)
                callers.start_soon(self._repeat, "free call", number, partial(client.get, "/v1/gratis/count?number=1"))

    async def answered_since(self, time: float) -> dict[tuple[str, int], float]:
        wanted = [(kind, number) for kind in PAUSES for number in range(len(self.campuses))]
        deadline = monotonic() + patience(CALL_SECONDS)
        while late := [each for each in wanted if not self.successes[each] or self.successes[each][-1] <= time]:
            assert monotonic() < deadline, (late, self.refusals)
            await anyio.sleep(LOOK_SECONDS)
        return {each: next(at for at in self.successes[each] if at > time) for each in wanted}

    async def _repeat(self, kind: str, number: int, call: Callable[[], Awaitable[httpx.Response | bool]]) -> None:
        while not self.stopping:
            await self._attempt(kind, number, call)
            await anyio.sleep(PAUSES[kind])

    async def _attempt(self, kind: str, number: int, call: Callable[[], Awaitable[Any]]) -> Any:
        began = monotonic()
        try:
            answer = await call()
        except httpx.TransportError as error:
            answer = type(error).__name__
        self.slowest[kind] = max(self.slowest[kind], monotonic() - began)
        if getattr(answer, "status_code", answer) in (200, True):
            self.successes[kind, number].append(monotonic())
            return answer
        self.refusals[kind, str(getattr(answer, "status_code", answer or "failed"))] += 1
        await anyio.sleep(RETRY_SECONDS)
        return None

    async def _beat(self, client: httpx.AsyncClient, number: int, monitor: dict[str, Any]) -> None:
        name, path = monitor["monitor_id"], f"/v1/recorder/beat/{monitor['monitor_id']}/{monitor['secret']}"
        for seq in count(1):
            send = partial(client.post, path, json={"capsule": {"n": seq}, "seq": seq})
            while not self.stopping and await self._attempt("beat", number, send) is None:
                pass
            if self.stopping:
                return
            self.acknowledged.last_seq[name] = seq
            self.acknowledged.beats[name] += 1
            await anyio.sleep(PAUSES["beat"])

    async def _register(self, client: httpx.AsyncClient) -> httpx.Response:
        answer = await client.post("/v1/recorder/monitors", json=_monitor())
        if answer.status_code == 200:
            self.acknowledged.monitors.add(answer.json()["monitor_id"])
        return answer

    async def _change_keys(self, campus: Served) -> bool:
        issued = await anyio.to_thread.run_sync(campus.command, "key", "issue", "recorder", "--json")
        if issued.returncode:
            return False
        [key] = json.loads(issued.stdout)
        self.acknowledged.keys.add(key["id"])
        revoked = await anyio.to_thread.run_sync(campus.command, "key", "revoke", key["id"])
        if revoked.returncode == 0:
            self.acknowledged.revoked.add(key["id"])
        return True

    async def _pay(self, client: httpx.AsyncClient, number: int) -> None:
        for call in count(1):
            path = f"/v1/paid/count?number={call}"
            terms = await client.get(path)
            while terms.status_code != 402 and not self.stopping:
                self.refusals["terms", str(terms.status_code)] += 1
                await anyio.sleep(RETRY_SECONDS)
                terms = await client.get(path)
            if self.stopping:
                return
            signed = self.payer.payload(terms_of(terms))
            send = partial(client.get, path, headers=headers_of(signed))
            while (answer := await self._attempt("paid call", number, send)) is None:
                pass
            assert receipt_of(answer)["success"]
            assert answer.json() == {"number": call}
            self.acknowledged.payments.add(signed["payload"]["authorization"]["nonce"])
            await anyio.sleep(PAUSES["paid call"])


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _monitor() -> dict[str, Any]:
    return {"name": "agent", "alert_webhook": f"https://localhost:1/{token_hex(8)}", "period_minutes": 60}
