"""Takeovers: capsules are fetched, a dead monitor is taken over, the old agent is refused; pause, resume and the fleet."""

import pytest
from recorder.races import one_of_five_takeovers
from recorder.recorders import OpenRecorder, Recorder

from campus.testing import ORIGIN

pytestmark = pytest.mark.anyio


@pytest.mark.usefixtures("frame")
async def test_a_replacement_continues_where_the_dead_agent_stopped(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key, period_minutes=10, grace_minutes=2)
    await recorder.beat(monitor, capsule={"step": 7, "next": "b"}, seq=7)
    await recorder.pass_time(minutes=13)
    await recorder.sweep()
    found = (await recorder.call("fetch_capsule", monitor_id=monitor["monitor_id"], key=key)).data
    assert (found["state"], found["last"]["capsule"], found["fence"]) == ("dead", {"step": 7, "next": "b"}, 0)
    first, second = found["resume"]["calls"]
    taken = (await recorder.call(first["tool"], **first["arguments"], key=key)).data
    assert (taken["last"]["capsule"], taken["fence"], taken["state"]) == ({"step": 7, "next": "b"}, 1, "alive")
    assert taken["secret"] != monitor["secret"]
    assert f"/{monitor['monitor_id']}/{taken['secret']}/$c" in taken["cron"]
    beaten = await recorder.call(second["tool"], **{**second["arguments"], "secret": taken["secret"]})
    assert (beaten.status, beaten.data["capsule_stored"]) == (200, True)
    zombie = await recorder.beat(monitor)
    assert (zombie.status, zombie.code) == (409, "taken_over")
    assert (await recorder.row(monitor)).beats == 2
    assert await recorder.alerts(monitor) == [("dead", 1), ("recovered", 1)]


@pytest.mark.both_databases
async def test_of_many_replacements_exactly_one_succeeds(recorder: Recorder) -> None:
    await one_of_five_takeovers([recorder], rounds=3)


async def test_only_the_owner_of_a_dead_monitor_can_take_it(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key)
    ask = {"monitor_id": monitor["monitor_id"]}
    assert (await recorder.call("takeover", **ask, key=key)).code == "not_dead"
    await recorder.beat(monitor, status="fail")
    assert (await recorder.call("takeover", **ask)).status == 402
    assert (await recorder.call("takeover", **ask, key="recorder")).code == "monitor_not_found"
    assert (await recorder.call("takeover", **ask, secret="x", key=key)).code == "monitor_not_found"
    another = await recorder.call("takeover", **ask, secret=monitor["secret"], key="recorder")
    assert (another.status, another.code) == (404, "monitor_not_found"), "the right secret with another's key"
    assert (await recorder.row(monitor)).fence == 0
    assert (await recorder.call("takeover", **ask, secret=monitor["secret"], key=key)).status == 200


async def test_the_capsule_needs_the_key_and_a_secret_that_is_passed_must_be_correct(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor, free = await recorder.register(key=key), await recorder.register("https://localhost/free")
    ask = {"monitor_id": monitor["monitor_id"]}
    assert (await recorder.call("fetch_capsule", **ask, secret=monitor["secret"])).status == 402
    assert (await recorder.call("fetch_capsule", **ask, secret="x", key=key)).code == "monitor_not_found"
    assert (await recorder.call("fetch_capsule", monitor_id=free["monitor_id"], secret=free["secret"], key=key)).code == "monitor_not_found"
    found = (await recorder.call("fetch_capsule", **ask, secret=monitor["secret"], key=key)).data
    assert (found["found"], found["last"]) == (False, None)


async def test_the_fleet_shows_the_current_state_of_each_monitor(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key, period_minutes=10, grace_minutes=2, name="nightly")
    await recorder.beat(monitor, status="start")
    await recorder.pass_time(minutes=1)
    await recorder.beat(monitor, capsule={"text": "x" * 500}, seq=1)
    for minutes, state in ((9, "alive"), (1, "late"), (2, "dead")):
        await recorder.pass_time(minutes=minutes)
        (listed,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
        assert listed["state"] == state
    entry = (await recorder.call("get_monitor", key=key, monitor_id=monitor["monitor_id"])).data
    assert listed.items() <= entry.items()
    assert (entry["name"], entry["beats"], entry["reason"]) == ("nightly", 2, "timeout")
    assert (entry["last_beat_at"], entry["since"]) == ("2026-08-21T12:01:00Z", "2026-08-21T12:13:00Z")
    assert [(one["status"], one["run_seconds"]) for one in entry["last_beats"]] == [("ok", 60), ("start", None)]
    assert (entry["capsule"]["size"], len(entry["capsule"]["text"])) == (511, 200)
    assert monitor["secret"] not in str(entry)


async def test_uptime_is_the_share_of_the_watched_time(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key, period_minutes=600)
    await recorder.pass_time(minutes=30)
    await recorder.beat(monitor)
    await recorder.pass_time(minutes=60)
    await recorder.beat(monitor, status="fail")
    await recorder.pass_time(minutes=20)
    await recorder.beat(monitor)
    await recorder.call("pause_monitor", monitor_id=monitor["monitor_id"], key=key)
    await recorder.pass_time(minutes=500)
    (entry,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
    assert entry["uptime"] == pytest.approx(60 / 80)


async def test_a_paused_monitor_says_how_to_take_it_over(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key, period_minutes=10, grace_minutes=2)
    who = {"monitor_id": monitor["monitor_id"], "key": key}
    await recorder.call("pause_monitor", **who)
    await recorder.pass_time(days=1)
    resume = (await recorder.call("fetch_capsule", **who)).data["resume"]
    assert "no beat within 12 minutes" in resume["words"]
    assert resume["calls"][0]["tool"] == "resume_monitor"
    assert resume["calls"][0]["http"] == f"POST {ORIGIN}/v1/recorder/monitors/{monitor['monitor_id']}/resume"
    refused = await recorder.call("takeover", **who)
    assert (refused.code, "is paused" in refused.data["detail"]) == ("not_dead", True)
    await recorder.call(resume["calls"][0]["tool"], **who)
    await recorder.pass_time(minutes=12)
    assert (await recorder.call("takeover", **who)).status == 200


@pytest.mark.parametrize(
    ("period", "every", "paused"), [(1, "every minute,", "1 minute."), (525_600, "every 525600 minutes,", "525600 minutes.")]
)
async def test_a_replacement_reads_how_often_to_beat(recorder: Recorder, period: int, every: str, paused: str) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key, period_minutes=period, grace_minutes=0)
    who = {"monitor_id": monitor["monitor_id"], "key": key}
    await recorder.call("pause_monitor", **who)
    assert f"no beat within {paused}" in (await recorder.call("fetch_capsule", **who)).data["resume"]["words"]
    await recorder.beat(monitor, status="fail")
    assert f"at least {every}" in (await recorder.call("fetch_capsule", **who)).data["resume"]["words"]
    assert f"at least {every}" in (await recorder.call("takeover", **who)).data["words"]


@pytest.mark.usefixtures("frame")
async def test_a_paused_monitor_raises_no_alert_until_it_beats_or_is_resumed(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key)
    who = {"monitor_id": monitor["monitor_id"]}
    paused = (await recorder.call("pause_monitor", **who, secret=monitor["secret"])).data
    assert (paused["paused"], paused["state"], paused["deadline_at"]) == (True, "alive", None)
    await recorder.pass_time(days=2)
    assert await recorder.sweep() == 0
    resumed = (await recorder.call("resume_monitor", **who, key=key)).data
    assert (resumed["paused"], resumed["deadline_at"]) == (False, "2026-08-23T13:05:00Z")
    await recorder.call("pause_monitor", **who, key=key)
    await recorder.beat(monitor)
    assert (await recorder.row(monitor)).mode == "up"
    assert (await recorder.call("pause_monitor", **who, secret="x")).code == "monitor_not_found"
    assert (await recorder.call("resume_monitor", **who)).code == "monitor_not_found"


async def test_an_agent_that_knows_only_the_descriptions_finds_its_way(open_recorder: OpenRecorder) -> None:
    async with open_recorder("mcp") as recorder:
        opened = next(one for one in recorder.campus.service.plan.opened if one.name == "recorder")
        for tool in opened.tools.values():
            assert tool.description
            assert all(schema.get("description") for schema in tool.parameters["properties"].values()), tool.name
            assert tool.output_schema
            assert all(schema.get("description") for schema in tool.output_schema["properties"].values()), tool.name
        entry = (await recorder.campus.http.get("/v1/recorder")).json()
        tiers = {tool["name"]: tool["free"] for tool in entry["tools"]}
        assert tiers == {
            "register_monitor": True,
            "replace_secret": False,
            "heartbeat": True,
            "fetch_capsule": False,
            "takeover": False,
            "fleet_status": False,
            "update_monitor": True,
            "pause_monitor": True,
            "resume_monitor": True,
            "delete_monitor": True,
            "send_test_alert": True,
            "acknowledge": True,
            "snooze": True,
            "claim_monitor": False,
            "get_monitor": True,
            "beat_now": False,
            "make_fleet_key": False,
            "list_fleet_keys": False,
            "end_fleet_key": False,
            "import_monitors": False,
            "delete_everything": False,
        }
