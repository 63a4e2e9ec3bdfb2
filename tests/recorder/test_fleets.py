"""Fleets: filters, one monitor, slugs, tags and their badges, keys that can do less, limits by product, export, deletion and import."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import anyio
import pytest
from recorder.recorders import OpenRecorder, Recorder

from campus.testing import ORIGIN

pytestmark = pytest.mark.anyio

UUIDS = [str(UUID(int=number, version=4)) for number in range(1, 6)]


def check(number: int, **changed: Any) -> dict[str, Any]:
    """A check as Healthchecks' API v3 lists it."""
    uuid = UUIDS[number]
    return {
        **{"name": f"Backup {number}", "slug": f"backup-{number}", "tags": "backup fs", "desc": "Runs each hour.", "grace": 600},
        **{"n_pings": 1, "status": "up", "started": False, "last_ping": "2020-03-24T14:02:03+00:00", "next_ping": None},
        **{"manual_resume": False, "methods": "", "start_kw": "START", "filter_subject": False, "filter_body": False},
        **{"uuid": uuid, "ping_url": f"https://hc-ping.com/{uuid}", "channels": "1bdea468-03bf-47b8-ab27-29a9dd0e4b94", "timeout": 3600},
        **changed,
    }


async def names(recorder: Recorder, key: str, **filters: Any) -> list[str]:
    answer = (await recorder.call("fleet_status", key=key, **filters)).data
    found = [one["name"] for one in answer["monitors"]]
    assert answer["found"] == len(found)
    return sorted(found)


async def read(recorder: Recorder, path: str, *, key: str | None = None) -> Any:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return await recorder.campus.http.get(path, headers=headers)


@pytest.mark.usefixtures("frame")
async def test_filters_choose_monitors_that_fit_all_of_them(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    await recorder.register(key=key, name="Web api", slug="api", tags=["web", "Prod"])
    await recorder.register(key=key, name="Web shop", tags=["web"])
    failed = await recorder.register(key=key, name="Night", tags=["web2", "prod"])
    await recorder.beat(failed, status="fail")
    await recorder.register(key="recorder", name="Web of another key", tags=["web"], slug="api")
    assert await names(recorder, key, tags=["web"]) == ["Web api", "Web shop"]
    assert await names(recorder, key, tags=["web", "Prod"]) == ["Web api"]
    assert await names(recorder, key, tags=["prod"]) == ["Night"]
    assert await names(recorder, key, state="dead") == ["Night"]
    assert await names(recorder, key, state="waiting", name="SHOP") == ["Web shop"]
    assert await names(recorder, key, slug="api") == ["Web api"]
    assert await names(recorder, key, name="%") == []
    first = (await recorder.call("fleet_status", key=key, tags=["web"], limit=1)).data
    second = (await recorder.call("fleet_status", key=key, tags=["web"], limit=1, after=first["next"])).data
    assert {one["name"] for page in (first, second) for one in page["monitors"]} == {"Web api", "Web shop"}
    assert (first["count"], first["found"], second["next"]) == (3, 2, None)
    assert (await recorder.call("fleet_status", key=key, state="fine")).status == 422


@pytest.mark.usefixtures("frame")
async def test_one_monitor_is_shown_to_its_owner_or_for_the_secret_of_a_free_one(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    owned = await recorder.register(key=key, tags=["b", "a"], slug="one", run_minutes=30)
    free = await recorder.register("https://localhost/free")
    await recorder.beat(owned)
    shown = (await recorder.call("get_monitor", key=key, monitor_id=owned["monitor_id"])).data
    assert (shown["slug"], shown["tags"], shown["options"]) == ("one", ["a", "b"], {"run_minutes": 30})
    assert [beat["status"] for beat in shown["last_beats"]] == ["ok"]
    assert owned["secret"] not in str(shown)
    own = (await recorder.call("get_monitor", monitor_id=free["monitor_id"], secret=free["secret"])).data
    assert (own["made_by"], own["resume_url"], own["tag_badges"]) == (None, None, {})
    refused = [
        await recorder.call("get_monitor", monitor_id=owned["monitor_id"], secret=owned["secret"]),
        await recorder.call("get_monitor", key="recorder", monitor_id=owned["monitor_id"]),
        await recorder.call("get_monitor", key=key, monitor_id=free["monitor_id"]),
        await recorder.call("get_monitor", key=key, monitor_id="mon_none"),
        await recorder.call("beat_now", key="recorder", monitor_id=owned["monitor_id"]),
    ]
    assert {(one.status, one.data["code"], one.data["detail"]) for one in refused} == {
        (404, "monitor_not_found", refused[0].data["detail"])
    }


async def test_registering_with_the_slug_of_a_monitor_changes_that_one(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    made = await recorder.register(key=key, slug="nightly", name="old", tags=["a"], run_minutes=9, period_minutes=60)
    again = await recorder.register("https://localhost/other", key=key, slug="nightly", name="new", period_minutes=90)
    assert (again["updated"], again["monitor_id"]) == (True, made["monitor_id"])
    assert (again["secret"], again["beat_url"], again["ping_url"], again["cron"]) == (None, None, None, None)
    assert any("replace_secret" in note for note in again["notes"])
    assert (await recorder.beat(made)).status == 200
    (entry,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
    assert (entry["name"], entry["period_minutes"], entry["tags"], entry["options"]) == ("new", 90, [], {})
    other = await recorder.register(key="recorder", slug="nightly")
    assert other["monitor_id"] != made["monitor_id"]


async def test_concurrent_registrations_with_one_slug_make_one_monitor(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(lambda number=number: recorder.register(key=key, slug="same", name=f"number {number}"))
    assert (await recorder.call("fleet_status", key=key)).data["count"] == 1
    for number in range(19):
        await recorder.register(key=key, name=f"more {number}")
    assert (await recorder.call("register_monitor", key=key, name="x", alert_webhook="https://localhost/hook")).status == 409
    assert (await recorder.register(key=key, slug="same"))["updated"]


async def test_a_slug_belongs_to_one_monitor_of_a_key_and_to_none_without(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    free = await recorder.register("https://localhost/free")
    first, second = [await recorder.register(key=key, slug=slug) for slug in ("first", "second")]
    refused = await recorder.call("register_monitor", name="a", alert_webhook="https://localhost/a", slug="first")
    assert (refused.status, refused.data["code"]) == (402, "access_required")
    change = {"monitor_id": second["monitor_id"], "slug": "first"}
    assert (await recorder.call("update_monitor", key=key, **change)).data["code"] == "slug_in_use"
    by_secret = await recorder.call("update_monitor", **{**change, "slug": "third"}, secret=second["secret"])
    assert by_secret.data["code"] == "owner_needed"
    own = await recorder.call("update_monitor", monitor_id=free["monitor_id"], secret=free["secret"], slug="mine")
    assert own.data["code"] == "owner_needed"
    assert (await recorder.call("update_monitor", key=key, monitor_id=first["monitor_id"], slug="first")).status == 200


async def test_badges_of_tags_show_the_worst_state_and_no_name(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    good, bad = [await recorder.register(key=key, name=f"secret name {number}", tags=["a/b", "web"]) for number in range(2)]
    await recorder.register(key="recorder", tags=["web"])
    for monitor in (good, bad):
        await recorder.beat(monitor)
    badges = (await recorder.call("get_monitor", key=key, monitor_id=good["monitor_id"])).data["tag_badges"]
    web = badges["web"].removeprefix(ORIGIN)
    as_json = web.replace(".svg", ".json")
    assert (await read(recorder, as_json)).json() == {"schemaVersion": 1, "label": "web", "message": "alive", "color": "#067647"}
    assert (await read(recorder, badges["a/b"].removeprefix(ORIGIN))).status_code == 200
    await recorder.beat(bad, status="fail")
    shown = await read(recorder, web)
    assert shown.headers["content-type"] == "image/svg+xml"
    assert ("web: dead" in shown.text, "secret name" in shown.text) == (True, False)
    assert (await read(recorder, web.replace("tag=web", "tag=prod"))).status_code == 404
    one = (await read(recorder, good["badge_url"].removeprefix(ORIGIN).replace(".svg", ".json"))).json()
    assert (one["label"], one["message"]) == ("secret name 0", "alive")
    for monitor in (good, bad):
        await recorder.call("delete_monitor", key=key, monitor_id=monitor["monitor_id"])
    assert (await read(recorder, as_json)).json()["message"] == "unknown"


@pytest.mark.usefixtures("frame")
async def test_the_owner_beats_for_a_monitor_without_its_secret(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key)
    await recorder.beat(monitor, status="fail")
    beaten = await recorder.call("beat_now", key=key, monitor_id=monitor["monitor_id"])
    assert (beaten.status, beaten.data["state"]) == (200, "alive")
    assert ("recovered", 1) in await recorder.alerts(monitor)
    shown = (await recorder.call("get_monitor", key=key, monitor_id=monitor["monitor_id"])).data
    assert [(run["result"], "owner" in (run["output"] or "")) for run in shown["last_runs"]] == [("ok", True), ("fail", False)]
    few = (await recorder.call("get_monitor", key=key, monitor_id=monitor["monitor_id"], runs=0, beats=1)).data
    assert (few["last_runs"], len(few["last_beats"])) == ([], 1)


async def test_a_read_key_reads_as_fleet_status_does_and_changes_nothing(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key, name="one", tags=["web"])
    await recorder.beat(monitor, capsule={"private": 1})
    await recorder.register(key=key, name="two")
    other = await recorder.register(key="recorder", name="of another key")
    made = (await recorder.call("make_fleet_key", key=key, kind="read")).data
    at = made["url"].removeprefix(ORIGIN)
    for query, filters in (("", {}), ("?tags=web&state=alive", {"tags": ["web"], "state": "alive"}), ("?name=TW", {"name": "TW"})):
        owners = (await recorder.call("fleet_status", key=key, **filters)).data
        readers = (await read(recorder, at + query)).json()
        hidden = [{name: one[name] for name in one if name not in ("capsule", "made_by", "resume_url")} for one in owners["monitors"]]
        assert readers == {**owners, "monitors": hidden}
    assert (await read(recorder, f"{at}/{monitor['monitor_id']}")).json()["name"] == "one"
    assert (await read(recorder, f"{at}/{other['monitor_id']}")).status_code == 404
    for wrong in ("?limit=0", "?x=1", "?state=fine", "?name=%00"):
        assert (await read(recorder, at + wrong)).status_code == 422
    for path in (at, f"{at}/{monitor['monitor_id']}"):
        assert {(await recorder.campus.http.request(method, path)).status_code for method in ("POST", "PUT", "PATCH", "DELETE")} == {405}
    monitors = "/v1/recorder/monitors"
    calls = [("GET", "/v1/recorder/fleet"), ("GET", "/v1/recorder/export"), ("DELETE", f"{monitors}?confirm=delete+everything")]
    calls += [("DELETE", f"{monitors}/{monitor['monitor_id']}"), ("POST", f"{monitors}/{monitor['monitor_id']}/pause")]
    headers = {"Authorization": f"Bearer {made['key']}"}
    answers = [await recorder.campus.http.request(method, path, headers=headers) for method, path in calls]
    assert {answer.status_code for answer in answers} <= {401, 402, 404}
    assert (await recorder.call("fleet_status", key=key)).data["count"] == 2


@pytest.mark.usefixtures("frame")
async def test_keys_beside_the_owning_one_are_bounded_and_end(recorder: Recorder) -> None:
    issued, key = await recorder.campus.service.keys.issue("recorder")
    made = [(await recorder.call("make_fleet_key", key=key, kind=kind)).data for kind in ["read", "ping"] * 5]
    assert (await recorder.call("make_fleet_key", key=key, kind="read")).data["code"] == "fleet_key_limit_reached"
    listed = (await recorder.call("list_fleet_keys", key=key)).data["keys"]
    assert [one["hint"] for one in listed] == [one["hint"] for one in made]
    assert made[0]["key"] not in str(listed)
    foreign = await recorder.call("end_fleet_key", key="recorder", hint=made[0]["hint"])
    assert (foreign.status, foreign.data["code"]) == (404, "fleet_key_not_found")
    assert (await read(recorder, made[0]["url"].removeprefix(ORIGIN))).status_code == 200
    assert (await read(recorder, f"/v1/recorder/read/{made[1]['key']}")).status_code == 404
    assert len((await recorder.call("end_fleet_key", key=key, hint=made[0]["hint"])).data["keys"]) == 9
    assert (await read(recorder, made[0]["url"].removeprefix(ORIGIN))).status_code == 404
    await recorder.campus.service.keys.revoke(issued.id)
    assert (await read(recorder, made[2]["url"].removeprefix(ORIGIN))).status_code == 404


async def test_a_product_may_include_more_monitors(open_recorder: OpenRecorder) -> None:
    async with open_recorder(settings={"monitors": 1, "monitors_of": {"all": 2}}) as recorder:
        small, large = await recorder.campus.key("recorder"), await recorder.campus.key("all")
        for key, most in ((small, 1), (large, 2)):
            for _ in range(most):
                await recorder.register(key=key)
            refused = await recorder.call("register_monitor", key=key, name="x", alert_webhook="https://localhost/hook")
            assert (refused.status, f"owns {most} monitors" in refused.data["detail"]) == (409, True)


async def test_the_export_has_everything_of_a_key_but_its_secrets(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register("https://localhost/hook/private-path", key=key, slug="mine", tags=["a"])
    await recorder.beat(monitor, capsule={"step": 7}, seq=1)
    await recorder.beat(monitor, status=3, output="no space")
    await recorder.register(key="recorder", name="of another key")
    answer = await read(recorder, "/v1/recorder/export", key=key)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["is"] for line in lines] == ["monitor", "run", "beat", "beat", "capsule"]
    assert (lines[1]["exit_code"], lines[1]["output"]) == (3, "no space")
    assert {line["monitor_id"] for line in lines} == {monitor["monitor_id"]}
    assert next(line["capsule"] for line in lines if line["is"] == "capsule") == {"step": 7}
    assert (lines[0]["slug"], lines[0]["targets"][0]["address"]) == ("mine", "https://localhost/…")
    for secret in (monitor["secret"], monitor["webhook_secret"], monitor["ping_url"].rpartition("/")[2], "private-path"):
        assert secret not in answer.text
    assert (await read(recorder, "/v1/recorder/export")).status_code == 402


@pytest.mark.usefixtures("frame")
async def test_everything_of_a_key_is_deleted_with_its_words_of_confirmation(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor, *_ = [await recorder.register(key=key) for _ in range(3)]
    other = await recorder.register(key="recorder")
    url = (await recorder.call("make_fleet_key", key=key, kind="read")).data["url"].removeprefix(ORIGIN)
    assert (await recorder.call("delete_everything", key=key, confirm="yes")).status == 422
    deleted = (await recorder.call("delete_everything", key=key, confirm="delete everything")).data
    assert (deleted["monitors"], deleted["keys"]) == (3, 1)
    assert (await recorder.beat(monitor)).status == 404
    assert (await read(recorder, url)).status_code == 404
    assert (await recorder.beat(other)).status == 200


@pytest.mark.usefixtures("frame")
async def test_checks_of_healthchecks_are_imported_once_and_keep_their_addresses(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    await recorder.register(key=key, slug="taken")
    cron = {"timeout": None, "schedule": "15 5 * * *", "tz": "Europe/Berlin", "manual_resume": True, "status": "paused"}
    checks = [
        check(0),
        {name: value for name, value in check(1, **cron, slug="taken").items() if value is not None},
        check(2, schedule="nonsense", name="Wrong"),
        check(3, uuid="not-one"),
        check(4, name="", slug="", methods="POST", desc="x" * 5_000),
    ]
    document = json.dumps({"checks": checks})
    webhook = {"alert_webhook": "https://localhost/hook"}
    answer = (await recorder.call("import_monitors", key=key, document=document, **webhook)).data
    assert [one["result"] for one in answer["checks"]] == ["made", "made", "refused", "refused", "made"]
    assert (answer["made"], answer["updated"], answer["refused"]) == (3, 0, 2)
    assert answer["checks"][0]["ping_url"] == f"{ORIGIN}/ping/{UUIDS[0]}"
    assert "taken" in answer["checks"][1]["notes"][0]
    assert "POST" in answer["checks"][4]["notes"][0]
    assert "read-only key" in answer["checks"][3]["notes"][0]
    entries: Mapping[str, Any] = {one["name"]: one for one in (await recorder.call("fleet_status", key=key)).data["monitors"]}
    hourly, daily = entries["Backup 0"], entries["Backup 1"]
    assert (hourly["slug"], hourly["tags"], hourly["period_minutes"], hourly["grace_minutes"]) == ("backup-0", ["backup", "fs"], 60, 10)
    expected = {"schedule": "15 5 * * *", "timezone": "Europe/Berlin", "manual_resume": True, "description": "Runs each hour."}
    assert (daily["options"], daily["paused"], daily["slug"]) == (expected, True, None)
    assert entries["unnamed"]["options"]["description"] == "x" * 1_000
    assert "first 1,000 characters" in " ".join(answer["checks"][4]["notes"])
    again = (await recorder.call("import_monitors", key=key, document=document, **webhook)).data
    assert (again["made"], again["updated"], again["refused"]) == (0, 3, 2)
    assert (await recorder.call("fleet_status", key=key)).data["count"] == 4
    foreign = (await recorder.call("import_monitors", key="recorder", document=json.dumps({"checks": [check(0)]}), **webhook)).data
    assert foreign["checks"][0]["result"] == "refused"


async def test_an_import_is_one_command_and_refuses_what_is_no_list_of_checks(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/x-www-form-urlencoded"}  # as curl --data-binary sends it
    path = "/v1/recorder/import?alert_webhook=https://localhost/hook"
    done = await recorder.campus.http.post(path, content=json.dumps({"checks": [check(0)]}), headers=headers)
    assert (done.status_code, done.json()["made"]) == (200, 1)
    deep = "[" * 100_000
    for wrong in ("{}", "nonsense", '{"checks": {}}', '{"checks": [1]}', '{"checks": [{"name": "\\u0000"}]}', deep, '{"detail": "no"}'):
        refused = await recorder.campus.http.post(path, content=wrong, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (422, "checks_unreadable"), wrong[:20]
    assert (await recorder.campus.http.post(path, content="{}")).status_code == 402


async def test_an_import_stays_within_the_limit_of_the_key(open_recorder: OpenRecorder) -> None:
    async with open_recorder(settings={"monitors": 2}) as recorder:
        key = await recorder.campus.key("recorder")
        document = json.dumps({"checks": [check(number) for number in range(4)]})
        answer = (await recorder.call("import_monitors", key=key, document=document, alert_webhook="https://localhost/hook")).data
        assert [one["result"] for one in answer["checks"]] == ["made", "made", "refused", "refused"]
        assert "owns 2 monitors" in answer["checks"][3]["notes"][0]
