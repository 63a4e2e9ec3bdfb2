"""Beats: which are accepted, which are refused, and what is on disk afterwards."""

import anyio
import httpx
import pytest
from patience import patience
from recorder.recorders import OpenRecorder, Recorder
from sqlalchemy import select

from buildings.recorder.tables import CAPSULES
from campus.storage import in_snapshot

pytestmark = pytest.mark.anyio


@pytest.mark.usefixtures("frame")
async def test_a_beat_moves_the_deadline_and_is_on_disk_when_it_is_answered(recorder: Recorder) -> None:
    monitor = await recorder.register(period_minutes=10, grace_minutes=2)
    await recorder.pass_time(minutes=3)
    reply = await recorder.beat(monitor)
    assert reply.status == 200, reply.data
    assert reply.data["state"] == "alive"
    assert reply.data["received_at"] == "2026-08-21T12:03:00Z"
    assert reply.data["deadline_at"] == "2026-08-21T12:15:00Z"
    row = await recorder.row(monitor)
    assert (row.beats, row.last_beat_at) == (1, recorder.clock())


async def test_get_and_post_record_a_beat_without_a_body(recorder: Recorder) -> None:
    monitor = await recorder.register()
    for method in ("GET", "POST"):
        answer = await recorder.campus.http.request(method, monitor["beat_url"])
        assert answer.status_code == 200
        assert "no-store" in answer.headers["cache-control"]
        assert answer.headers["referrer-policy"] == "same-origin"
    assert (await recorder.row(monitor)).beats == 2


async def test_an_options_request_records_no_beat(recorder: Recorder) -> None:
    monitor = await recorder.register()
    answer = await recorder.campus.http.options(monitor["beat_url"])
    assert (answer.status_code, answer.headers["allow"]) == (204, "POST, GET, HEAD, PUT, PATCH, DELETE, OPTIONS")
    assert (await recorder.row(monitor)).beats == 0


@pytest.mark.usefixtures("frame")
async def test_each_status_leads_to_its_state(recorder: Recorder) -> None:
    monitor = await recorder.register()
    for status, state in (
        ("ok", "alive"),
        ("start", "alive"),
        ("fail", "dead"),
        (0, "alive"),
        (1, "dead"),
        ("0", "alive"),
        ("255", "dead"),
    ):
        assert (await recorder.beat(monitor, status=status)).data["state"] == state, status


async def test_over_mcp_an_unknown_status_is_refused_and_nothing_is_stored(open_recorder: OpenRecorder) -> None:
    async with open_recorder("mcp") as recorder:
        monitor = await recorder.register()
        for status in ("done", 256, -1, 1.5, True, None, [], "OK", "256", "-1", "1.0", "\u0661", ""):
            reply = await recorder.beat(monitor, status=status)
            assert (reply.status, reply.code) == (422, "invalid_request"), status
            if status is not True:
                said = "status should be 'ok', 'start', 'idle', 'fail', 'log' or an exit code from 0 to 255; the beat was not counted"
                assert reply.data["detail"].endswith(said), status
        assert (await recorder.row(monitor)).beats == 0


async def test_an_unknown_id_and_a_wrong_secret_get_identical_answers(recorder: Recorder) -> None:
    monitor = await recorder.register()
    headers = {"X-Request-Id": "the-same-request-id"}
    http: httpx.AsyncClient = recorder.campus.http
    wrong = await http.get(f"/v1/recorder/beat/{monitor['monitor_id']}/{'x' * 32}", headers=headers)
    unknown = await http.get(f"/v1/recorder/beat/mon_0000000000000000/{monitor['secret']}", headers=headers)
    assert (wrong.status_code, wrong.json()["code"]) == (404, "monitor_not_found")
    assert wrong.content == unknown.content
    assert dict(wrong.headers) == dict(unknown.headers)
    deletions = [
        await http.delete(f"/v1/recorder/monitors/{one}", params={"s": "x" * 32}, headers=headers)
        for one in (monitor["monitor_id"], "mon_0")
    ]
    assert deletions[0].content == deletions[1].content == wrong.content


async def test_next_in_replaces_the_period_once(recorder: Recorder) -> None:
    monitor = await recorder.register(period_minutes=5, grace_minutes=1)
    reply = await recorder.beat(monitor, next_in=120)
    assert reply.data["deadline_at"] == "2026-08-21T14:01:00Z"
    assert (await recorder.beat(monitor)).data["deadline_at"] == "2026-08-21T12:06:00Z"


async def test_at_most_120_beats_a_minute_are_accepted(recorder: Recorder) -> None:
    monitor, other = await recorder.register(), await recorder.register("https://localhost/other")
    statuses = [(await recorder.beat(monitor)).status for _ in range(121)]
    assert statuses == [200] * 120 + [429]
    async with recorder.campus.site.storage.write():  # the refusal needs no turn at the writer
        with anyio.fail_after(patience(30)):
            refused = await recorder.beat(monitor)
    assert refused.code == "too_many_beats"
    assert (await recorder.beat(monitor | {"secret": "x" * 32})).status == 404, "a stranger learns that the monitor is at its limit"
    assert refused.headers["retry-after"] == "60"
    assert refused.headers["ratelimit"] == '"monitor";r=0;t=60'
    assert (await recorder.beat(other)).status == 200
    await recorder.pass_time(minutes=1)
    assert (await recorder.beat(monitor)).status == 200


async def test_concurrent_beats_are_all_counted(recorder: Recorder) -> None:
    monitors = [await recorder.register(f"https://localhost/{number}") for number in range(10)]
    async with anyio.create_task_group() as tasks:
        for number in range(300):
            tasks.start_soon(recorder.beat, monitors[number % 10])
    assert [(await recorder.row(one)).beats for one in monitors] == [30] * 10


async def test_an_invalid_key_does_not_prevent_a_beat(recorder: Recorder) -> None:
    monitor = await recorder.register()
    for token in ("campus_live_nonsense", await recorder.campus.key("cve")):
        answer = await recorder.campus.http.get(monitor["beat_url"], headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200


async def test_a_capsule_is_stored_only_if_a_key_owns_the_monitor(recorder: Recorder) -> None:
    keyed = await recorder.register(key="recorder")
    free = await recorder.register("https://localhost/free")
    assert (await recorder.beat(keyed, capsule={"step": 1})).data["capsule_stored"] is True
    reply = await recorder.beat(free, capsule={"step": 1})
    assert reply.data["capsule_stored"] is False
    assert "a key's monitor" in reply.data["note"]


@pytest.mark.usefixtures("frame")
async def test_any_json_value_is_returned_unchanged(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key)
    for capsule in ({"b": 1, "a": [None, True, 1.5]}, [], "", 0, False, "ü😀", {"": {}}):
        assert (await recorder.beat(monitor, capsule=capsule)).data["capsule_stored"] is True
        found = (await recorder.call("fetch_capsule", monitor_id=monitor["monitor_id"], key=key)).data
        assert found["last"]["capsule"] == capsule
        assert type(found["last"]["capsule"]) is type(capsule)


@pytest.mark.usefixtures("frame")
async def test_the_limit_counts_bytes_of_compact_utf_8_and_the_last_capsule_stays(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key)
    assert (await recorder.beat(monitor, capsule="ü" * 16_383)).data["capsule_stored"] is True
    refused = await recorder.beat(monitor, capsule="ü" * 16_383 + "x")
    assert (refused.status, refused.code) == (413, "capsule_too_large")
    found = (await recorder.call("fetch_capsule", monitor_id=monitor["monitor_id"], key=key)).data
    assert (found["last"]["size"], found["earlier"]) == (32_768, [])
    assert (await recorder.row(monitor)).beats == 2


async def test_the_last_five_capsules_are_kept(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key)
    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(lambda number=number: recorder.beat(monitor, capsule=number))
    found = (await recorder.call("fetch_capsule", monitor_id=monitor["monitor_id"], key=key)).data
    assert len({found["last"]["capsule"], *(one["capsule"] for one in found["earlier"])}) == 5
    rows = await in_snapshot(recorder.campus.site.storage, lambda connection: connection.execute(select(CAPSULES)).all())
    assert len(rows) == 5


async def test_a_lower_seq_is_refused_and_nothing_is_recorded(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key)
    for seq, status in ((5, 200), (4, 409), (5, 200), (6, 200)):
        assert (await recorder.beat(monitor, capsule={"seq": seq}, seq=seq)).status == status
    refused = await recorder.beat(monitor, capsule={"seq": 1}, seq=1, status="fail")
    assert (refused.code, refused.data["last_seq"]) == ("stale_seq", 6)
    found = (await recorder.call("fetch_capsule", monitor_id=monitor["monitor_id"], key=key)).data
    assert [found["last"]["seq"], *(one["seq"] for one in found["earlier"])] == [6, 5]
    assert (await recorder.row(monitor)).beats == 3
    assert found["state"] == "alive"


BROKEN = ['"broken', "{1: 2}", "[1,]", "\x00"]


async def test_the_capsule_of_broken_json_is_not_stored_and_the_beat_counts(recorder: Recorder) -> None:
    monitor = await recorder.register(key="recorder")
    for text in BROKEN:
        body, headers = f'{{"capsule": {text}}}', {"Content-Type": "application/json"}
        answer = await recorder.campus.http.post(monitor["beat_url"], content=body, headers=headers)
        assert (answer.status_code, answer.json()["capsule_stored"], len(answer.json()["ignored"])) == (200, False, 1), text[:20]
    row = await recorder.row(monitor)
    assert (row.beats, row.capsules) == (len(BROKEN), 0)


async def test_a_malformed_secret_is_refused_and_not_repeated_in_the_answer(recorder: Recorder) -> None:
    monitor = await recorder.register()
    for path in ("%ff", "x" * 129, "..", "%00", monitor["secret"] + "x"):
        answer = await recorder.campus.http.get(f"/v1/recorder/beat/{monitor['monitor_id']}/{path}")
        assert answer.status_code in (404, 422), path
        assert monitor["secret"] not in answer.text
