"""Random walks over HTTP and MCP on both databases: the whole building against a model of one monitor and of what its targets get."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import anyio.from_thread
import pytest
from anyio.from_thread import BlockingPortal
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from recorder.model import MINUTE, TARGETS, Model, Options
from recorder.receivers import Authority, Receiver, open_receiver
from recorder.recorders import OpenRecorder, Recorder

from buildings.recorder.monitors.rows import apply_key_event
from campus.storage import in_transaction
from campus.testing import Reply

FAST = {"alerts_per_target": 10_000, "alerts_per_host": 10_000, "shared_hosts": ["localhost"]}
UNKNOWN = ("finished", "")
STATUSES = st.sampled_from(["ok", "ok", "start", "start", "idle", "fail", "log", 0, 3, 255, "finished", ""])
BEATS = st.tuples(
    st.just("beat"),
    STATUSES,
    st.sampled_from([None, None, "a", "b"]),
    st.sampled_from([None, None, "output"]),
    st.sampled_from([None, None, None, 7, 25]),
    st.sampled_from([None, None, 1, 2]),
)
WAITS = st.tuples(st.just("wait"), st.sampled_from([30, 60, 120, 300, 420, 600, 720, 1200]))
ACTS = st.one_of(
    BEATS,
    BEATS,
    BEATS,
    WAITS,
    WAITS,
    st.tuples(st.sampled_from(["sweep", "sweep", "takeover", "zombie", "pause", "resume", "acknowledge", "key_ended", "key_renewed"])),
    st.tuples(st.just("snooze"), st.sampled_from([0, 5, 30])),
    st.tuples(st.just("update"), st.sampled_from([3, 10, 20]), st.sampled_from([1, 1, 2, 3])),
)
STEPS = st.lists(st.tuples(ACTS, st.booleans()), min_size=20, max_size=40)
OPTIONS = st.fixed_dictionaries(
    {
        "run": st.sampled_from([None, 4 * MINUTE, 30 * MINUTE]),
        "failures": st.sampled_from([1, 1, 2, 3]),
        "remind": st.sampled_from([None, 15 * MINUTE]),
        "manual": st.booleans(),
        "stuck_after": st.sampled_from([None, 2, 3]),
        "stuck_takeover": st.booleans(),
        "cron": st.booleans(),
        "closed": st.sampled_from([None, (30 * MINUTE, 55 * MINUTE)]),
    }
)


@dataclass
class Walk:
    """One monitor of the building beside its model."""

    recorder: Recorder
    receiver: Receiver
    path: str
    noon: datetime
    key: str
    model: Model
    monitor: dict[str, Any] = field(default_factory=dict)
    old: list[str] = field(default_factory=list)

    async def register(self) -> None:
        options = self.model.options
        closed = options.closed and "/".join((self.noon + timedelta(seconds=at)).isoformat() for at in options.closed)
        more = [
            {"address": self.url(name), "on": list(one.on or ()), "after_minutes": one.after and one.after / 60}
            for name, one in TARGETS.items()
        ]
        self.monitor = await self.recorder.register(
            self.url("chat"),
            key=self.key,
            period_minutes=options.period / 60,
            grace_minutes=options.grace / 60,
            run_minutes=options.run and options.run / 60,
            alert_after_failures=options.failures,
            remind_minutes=options.remind and options.remind / 60,
            manual_resume=options.manual,
            stuck_after=options.stuck_after,
            stuck_takeover=options.stuck_takeover,
            schedule="*/10 * * * *" if options.cron else None,
            maintenance=[closed] if closed else [],
            targets=more[1:],
        )

    def url(self, target: str) -> str:
        return self.receiver.url(f"{self.path}/{target}")

    async def call(self, tool: str, over: str, **arguments: Any) -> Reply:
        campus = replace(self.recorder.campus, frame=over)
        return await campus.call(tool, monitor_id=self.monitor["monitor_id"], **{"key": self.key, **arguments})

    async def step(self, act: tuple[Any, ...], over: str) -> None:
        name, *given = act
        await getattr(self, f"_{name}", partial(self._changed, name))(over, *given)
        while await self.recorder.deliver():
            pass

    async def _beat(self, over: str, status: Any, rid: Any, output: Any, next_in: Any, progress: Any) -> None:
        if status not in UNKNOWN:
            self.model.beat(status, rid, output, next_in and next_in * MINUTE, progress)
        elif over == "http":
            self.model.beat("log", rid, output or status, None, progress)
        given = {"status": status, "rid": rid, "output": output, "next_in": next_in, "progress": progress}
        sent = {name: value for name, value in given.items() if value is not None}
        reply = await self.call("heartbeat", over, key=None, secret=self.monitor["secret"], **sent)
        # an unknown word is no sign of life: HTTP keeps it, MCP refuses it
        is_known = status not in UNKNOWN
        assert (reply.status == 200) == (is_known or over == "http"), reply.data
        if is_known:
            seen = self.model.seen()
            assert (reply.data["state"], reply.data["stuck"], self.second(reply.data["deadline_at"])) == (
                seen["state"],
                seen["stuck"],
                seen["deadline_at"],
            )

    async def _wait(self, _: str, seconds: int) -> None:
        """Let time pass; the building looks at least when a mute ends, as it does each second."""
        end = self.model.at + seconds
        for at in sorted({end, self.model.muted_until, (self.model.options.closed or (0, 0))[1]}):
            if self.model.at < at <= end:
                await self.recorder.pass_time(seconds=at - self.model.at)
                self.model.at = at
                if at != end:
                    await self._sweep("")

    async def _sweep(self, _: str) -> None:
        self.model.sweep()
        await self.recorder.sweep()

    async def _takeover(self, over: str) -> None:
        is_free = self.model.takeover()
        reply = await self.call("takeover", over)
        assert (reply.status == 200) == is_free, reply.data
        if is_free:
            assert reply.data["fence"] == self.model.fence
            self.old.append(self.monitor["secret"])
            self.monitor["secret"] = reply.data["secret"]

    async def _zombie(self, over: str) -> None:
        for secret in self.old[-1:]:
            reply = await self.call("heartbeat", over, key=None, secret=secret, status="ok")
            assert (reply.status, reply.code) == (409, "taken_over")

    async def _acknowledge(self, over: str) -> None:
        reply = await self.call("acknowledge", over)
        assert (reply.status == 200) == self.model.acknowledge(), reply.data

    async def _snooze(self, over: str, minutes: int) -> None:
        self.model.snooze(minutes * MINUTE)
        assert (await self.call("snooze", over, minutes=minutes)).status == 200

    async def _update(self, over: str, period: int, failures: int) -> None:
        self.model.update(period * MINUTE, failures)
        reply = await self.call("update_monitor", over, period_minutes=period, alert_after_failures=failures)
        assert reply.status == 200, reply.data

    async def _changed(self, event: Any, over: str) -> None:
        """What its owner, or the end of the owner's key, does to it."""
        self.model.apply(event)
        if event in ("pause", "resume"):
            assert (await self.call(f"{event}_monitor", over)).status == 200
        else:
            owner = (await self.recorder.row(self.monitor)).owner
            work = partial(apply_key_event, lineage=owner, event=event, now=self.recorder.clock())
            await in_transaction(self.recorder.campus.site.storage, work)

    def second(self, moment: str | None) -> int | None:
        return None if moment is None else round((datetime.fromisoformat(moment) - self.noon).total_seconds())

    async def seen(self, over: str) -> Mapping[str, Any]:
        entry, row = (await self.call("get_monitor", over, runs=100)).data, await self.recorder.row(self.monitor)
        expected = self.model.seen()
        shown = {
            name: self.second(entry[name]) if name.endswith(("_at", "_until", "since")) else entry[name]
            for name in expected
            if name in entry
        }
        runs = entry["last_runs"]
        past = [(run["rid"], run["result"], run["exit_code"], self.second(run["started_at"]), self.second(run["ended_at"])) for run in runs]
        return {**shown, "failures": row.failures, "open": sum(run["ended_at"] is None for run in runs), "runs": past[:5]}

    def got(self) -> dict[str, list[tuple[str, str, int | None]]]:
        """What each target received: kind, reason, and since when."""
        got: dict[str, list[tuple[str, str, int | None]]] = {name: [] for name in TARGETS}
        for one in self.receiver.requests:
            if one.path.startswith(f"{self.path}/"):
                event = one.json
                kind = event["type"].removeprefix("monitor.")
                got[one.path.rpartition("/")[2]].append((kind, event["reason"], self.second(event["since"])))
        return got


@asynccontextmanager
async def walked(open_recorder: OpenRecorder, authority: Authority, storage: str) -> AsyncIterator[tuple[Recorder, Receiver]]:
    async with open_receiver(authority) as receiver, open_recorder("http", storage=storage, settings=FAST) as recorder:
        yield recorder, receiver


@pytest.fixture
def threaded(open_recorder: OpenRecorder, authority: Authority, storage_url: str) -> Iterator[tuple[BlockingPortal, Recorder, Receiver]]:
    """A recorder and a receiver in an event loop that all examples share."""
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(walked(open_recorder, authority, storage_url)) as (recorder, receiver),
    ):
        yield portal, recorder, receiver


@pytest.mark.both_databases
def test_the_building_does_what_the_model_says(threaded: tuple[BlockingPortal, Recorder, Receiver]) -> None:
    portal, recorder, receiver = threaded
    numbers = count()

    @settings(
        max_examples=settings.default.max_examples // 5,
        derandomize=settings.default.max_examples < 100,  # the same walks each time in the suite, others with `make laws`
        phases=[Phase.generate],  # to shrink a walk takes minutes, and its message says at which step it went wrong
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(OPTIONS, STEPS)
    def law(options: dict[str, Any], steps: list[Any]) -> None:
        portal.call(partial(play, recorder, receiver, f"/{next(numbers)}", options, steps))

    law()


async def play(recorder: Recorder, receiver: Receiver, path: str, options: dict[str, Any], steps: list[Any]) -> None:
    noon = recorder.clock().replace(hour=12, minute=0, second=0) + timedelta(days=1)  # each walk begins at a noon
    await recorder.pass_time(seconds=(noon - recorder.clock()).total_seconds())
    walk = Walk(recorder, receiver, path, noon, await recorder.campus.key("recorder"), Model(Options(**options), 0))
    await walk.register()
    for number, (act, is_mcp) in enumerate(steps):
        await walk.step(act, "mcp" if is_mcp else "http")
        assert await walk.seen("http" if number % 5 else "mcp") == walk.model.seen(), (number, act)
        assert walk.got() == walk.model.sent, (number, act)
    await walk.call("delete_monitor", "http")
