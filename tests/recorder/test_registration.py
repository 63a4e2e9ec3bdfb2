"""Registrations: what they return, which are refused, and limits that hold for any number of concurrent ones."""

from datetime import timedelta
from hashlib import sha256

import anyio
import httpx
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from recorder.races import TARGET, one_of_two_registrations, twenty_of
from recorder.recorders import OpenRecorder, Recorder
from sqlalchemy import Table, func, select

from buildings.recorder.tables import MONITORS, OWNERS, REPLIES, TARGETS
from campus.storage import in_snapshot

pytestmark = pytest.mark.anyio

NONCE_BYTES = 12


async def count(recorder: Recorder, table: Table) -> int:
    return await in_snapshot(recorder.campus.site.storage, lambda connection: connection.scalar(select(func.count()).select_from(table)))


@pytest.mark.usefixtures("frame")
async def test_a_registration_returns_everything_that_an_agent_needs(recorder: Recorder) -> None:
    answer = await recorder.register()
    assert answer["tier"] == "free"
    assert (answer["state"], answer["period_minutes"], answer["grace_minutes"]) == ("alive", 60, 5)
    assert answer["deadline_at"] == "2026-08-21T13:05:00Z"
    assert answer["webhook_secret"].startswith("whsec_")
    assert answer["beat_url"] == f"http://campus.test/v1/recorder/beat/{answer['monitor_id']}/{answer['secret']}"
    assert answer["cron"].endswith(f'"{answer["beat_url"]}/$c"; (exit $c)')
    assert "\n" not in answer["cron"]
    assert answer["resume_url"] is None
    keyed = await recorder.register(key="recorder")
    assert keyed["tier"] == "key"
    assert keyed["resume_url"] == f"http://campus.test/v1/recorder/capsule/{keyed['monitor_id']}"


async def test_secrets_are_stored_as_digests(recorder: Recorder) -> None:
    answer = await recorder.register()
    row = await recorder.row(answer)
    assert answer["secret"] not in str(row._asdict())
    assert len(row.secret_digest) == 32


async def test_arguments_out_of_bounds_are_refused(recorder: Recorder) -> None:
    for number, (period, grace) in enumerate(((0.1, 0), (525_600, 525_600))):
        await recorder.register(f"https://localhost/{number}", period_minutes=period, grace_minutes=grace)
    for wrong in (
        {"period_minutes": 0.09},
        {"period_minutes": 525_601},
        {"grace_minutes": -1},
        {"grace_minutes": 525_601},
        {"name": ""},
        {"name": " "},
    ):
        reply = await recorder.call("register_monitor", **{"name": "a", "alert_webhook": TARGET, **wrong})
        assert (reply.status, reply.code) == (422, "invalid_request"), wrong
    reply = await recorder.call("register_monitor", name="a\nb", alert_webhook=TARGET)
    assert reply.code == "invalid_request"


async def test_a_missing_target_or_mail_server_is_named(recorder: Recorder) -> None:
    neither = await recorder.call("register_monitor", name="a")
    assert (neither.status, neither.code) == (422, "invalid_request")
    assert "alert_webhook" in neither.data["detail"]
    for key in ("recorder", None):  # without a key too: nobody is told to buy one for e-mail that is never sent
        no_mail = await recorder.call("register_monitor", name="a", alert_email="me@example.com", key=key)
        assert (no_mail.status, no_mail.code) == (422, "no_mail_here")


@pytest.mark.usefixtures("frame")
async def test_a_key_of_another_building_is_refused_with_the_keys_that_fit(recorder: Recorder) -> None:
    reply = await recorder.call("register_monitor", name="a", alert_webhook=TARGET, key="cve")
    assert (reply.status, reply.code) == (403, "insufficient_scope")
    assert {one["product"] for one in reply.data["unlock"]} == {"recorder", "all"}


BAD = {
    "http://example.com/x": "scheme",
    "https://127.0.0.1/x": "literal",
    "https://2130706433/x": "literal",
    "https://0x7f.1/x": "literal",
    "https://[::1]/x": "literal",
    "https://169.254.169.254/latest": "literal",
    "https://example.com:8080/x": "port",
    "https://user@example.com/x": "userinfo",
    "https://example.com/x#y": "fragment",
    "https://metadata.google.internal/x": "reserved_name",
    "https://campus.test/x": "reserved_name",
    "https://single/x": "name",
    "ftp://example.com/x": "scheme",
    "javascript:alert(1)": "scheme",
    "https://[::1/": "url",
    "https://[x]/": "url",
    "https://[127.0.0.1]/": "url",
    "https://good.dev:0/": "port",
    "https://good.dev:99999/": "port",
}


async def test_a_forbidden_target_is_refused_with_the_rule(recorder: Recorder) -> None:
    for url, rule in BAD.items():
        reply = await recorder.call("register_monitor", name="a", alert_webhook=url)
        assert (reply.status, reply.code, reply.data["rule"]) == (422, "target_refused", rule), url
    assert await count(recorder, TARGETS) == 0


async def test_a_target_without_a_key_has_one_monitor_whatever_its_query(recorder: Recorder) -> None:
    first = await recorder.register("https://localhost/hook?a=1")
    for same in ("https://localhost/hook", "https://LOCALHOST/hook?b=2"):
        reply = await recorder.call("register_monitor", name="b", alert_webhook=same)
        assert reply.status in (409, 422), reply.data
    await recorder.register("https://localhost/another")
    await recorder.register("https://localhost/hook", key="recorder")
    deleted = await recorder.call("delete_monitor", monitor_id=first["monitor_id"], secret=first["secret"])
    assert deleted.data["deleted"] is True
    await recorder.register("https://localhost/hook")


@pytest.mark.both_databases
async def test_thirty_concurrent_registrations_leave_exactly_twenty_monitors(recorder: Recorder) -> None:
    await twenty_of(30, [recorder])
    assert await count(recorder, MONITORS) == 20


@pytest.mark.both_databases
async def test_of_two_concurrent_registrations_of_one_target_exactly_one_succeeds(recorder: Recorder) -> None:
    await one_of_two_registrations([recorder], rounds=8)
    assert await count(recorder, MONITORS) == 8


async def test_monitors_follow_their_key_through_rotation(recorder: Recorder) -> None:
    keys = recorder.campus.service.keys
    key, token = await keys.issue("recorder")
    monitor = await recorder.register(key=token)
    _, rotated = await keys.rotate(key.id)
    fleet = (await recorder.call("fleet_status", key=rotated)).data
    assert [one["monitor_id"] for one in fleet["monitors"]] == [monitor["monitor_id"]]
    assert (await recorder.call("fleet_status", key="recorder")).data["monitors"] == []
    other = await recorder.call("fetch_capsule", monitor_id=monitor["monitor_id"], key="recorder")
    assert (other.status, other.code) == (404, "monitor_not_found")


async def test_a_repeated_registration_is_one_registration(recorder: Recorder) -> None:
    http, body = recorder.campus.http, {"name": "a", "alert_webhook": TARGET}
    headers = {"Idempotency-Key": "7d1c6c1e-0f0a-4f0e-9d7b-1f2d3c4b5a69"}
    answers: list[httpx.Response] = []

    async def post() -> None:
        answers.append(await http.post("/v1/recorder/monitors", json=body, headers=headers))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(post)
    assert {one.status_code for one in answers} == {200}
    assert len({one.content for one in answers}) == 1
    assert await count(recorder, MONITORS) == 1
    other = await http.post("/v1/recorder/monitors", json=body | {"name": "b"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    sealed = await in_snapshot(recorder.campus.site.storage, lambda connection: connection.execute(select(REPLIES)).one())
    assert answers[0].json()["secret"].encode() not in sealed.sealed
    assert headers["Idempotency-Key"].encode() not in sealed.sealed + sealed.key_digest
    recorder.clock.move(timedelta(hours=25))
    later = await http.post("/v1/recorder/monitors", json=body, headers=headers)
    assert later.json()["code"] == "target_in_use"


async def test_a_retry_is_answered_beyond_the_limit_and_from_the_same_network(open_recorder: OpenRecorder) -> None:
    body, headers = {"name": "a", "alert_webhook": TARGET}, {"Idempotency-Key": "7d1c6c1e-0f0a-4f0e-9d7b-1f2d3c4b5a69"}
    async with open_recorder(settings={"registrations_per_minute": 1}) as recorder:
        answers = []
        for address in ("2001:db8::1", "2001:db8::1", "2001:db8::ffff:1"):
            async with recorder.calling_from(address) as caller:
                answers.append(await caller.campus.http.post("/v1/recorder/monitors", json=body, headers=headers))
        async with recorder.calling_from("2001:db8::1") as caller:
            more = await caller.call("register_monitor", name="b", alert_webhook="https://localhost/x")
        assert [one.status_code for one in answers] == [200] * 3, answers[-1].text
        assert len({one.content for one in answers}) == 1
        assert (more.status, await count(recorder, MONITORS)) == (429, 1)


async def test_two_keys_do_not_share_an_idempotency_key(recorder: Recorder) -> None:
    body, ids = {"name": "a", "alert_webhook": TARGET}, set()
    for _ in range(2):
        headers = {"Idempotency-Key": "fV3k9Zq0tLx7Rw2uBn5sYd8A", "Authorization": f"Bearer {await recorder.campus.key('recorder')}"}
        ids.add((await recorder.campus.http.post("/v1/recorder/monitors", json=body, headers=headers)).json()["monitor_id"])
    assert len(ids) == 2


async def test_deleting_leaves_nothing_behind(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key)
    await recorder.beat(monitor, capsule={"a": 1})
    await recorder.beat(monitor, status="fail")
    assert (await recorder.call("delete_monitor", monitor_id=monitor["monitor_id"], key=key)).status == 200
    assert (await recorder.beat(monitor)).code == "monitor_not_found"
    assert (await recorder.call("delete_monitor", monitor_id=monitor["monitor_id"], key=key)).code == "monitor_not_found"
    for table in (
        MONITORS,
        TARGETS,
        *(one for one in MONITORS.metadata.sorted_tables if one.name in ("capsule", "alert", "retired_secret")),
    ):
        assert await count(recorder, table) == 0, table.name
    owner = await in_snapshot(recorder.campus.site.storage, lambda connection: connection.execute(select(OWNERS)).one())
    assert owner.monitors == 0


@pytest.mark.usefixtures("frame")
async def test_an_ignored_key_is_named_in_the_answer(recorder: Recorder) -> None:
    keys = recorder.campus.service.keys
    expired, revoked = await keys.issue("recorder"), await keys.issue("recorder")
    await keys.revoke(revoked[0].id)
    await recorder.pass_time(days=31)
    sent = {"key_expired": expired[1], "key_revoked": revoked[1], "key_unknown": "campus_live_nonsense"}
    for code, token in sent.items():
        answer = await recorder.register(f"https://localhost/{code}", key=token)
        assert (answer["tier"], answer["key_ignored"]) == ("free", code)
        assert "no key owns this monitor" in answer["notes"][0]
        assert ("has expired" in answer["notes"][0]) == (code == "key_expired")
    for number, token in enumerate((None, "recorder")):
        answer = await recorder.register(f"https://localhost/{number}", key=token)
        assert answer["key_ignored"] is None
        assert not any("no key owns this monitor" in note for note in answer["notes"])


WEAK_KEYS = ("a" * 22, "1", "1234567890123456789012", "idempotency-key-000001", "registration-2026-11-22")


@pytest.mark.usefixtures("frame")
async def test_a_weak_idempotency_key_is_refused_and_registers_nothing(recorder: Recorder) -> None:
    body = {"name": "a", "alert_webhook": TARGET}
    for key in WEAK_KEYS:
        headers = {"Idempotency-Key": key}
        if recorder.campus.frame == "http":
            answer = await recorder.campus.http.post("/v1/recorder/monitors", json=body, headers=headers)
            status, said = answer.status_code, answer.json()
        else:
            async with recorder.campus.mcp(headers=headers) as client:
                result = await client.call_tool("register_monitor", body, raise_on_error=False)
            said = result.structured_content
            status = said["status"] if result.is_error else 200
        assert (status, said.get("code")) == (400, "weak_idempotency_key"), key
        assert "secrets.token_urlsafe" in said["detail"]
    assert await count(recorder, MONITORS) == 0


async def test_a_missing_argument_and_its_default_are_the_same_request(recorder: Recorder) -> None:
    http, headers = recorder.campus.http, {"Idempotency-Key": "7d1c6c1e-0f0a-4f0e-9d7b-1f2d3c4b5a69"}
    body = {"name": "a", "alert_webhook": TARGET}
    same = (body, body | {"period_minutes": 60, "grace_minutes": 5.0}, body | {"alert_email": None}, body | {"name": " a "})
    answers = [await http.post("/v1/recorder/monitors", json=one, headers=headers) for one in same]
    assert [one.status_code for one in answers] == [200] * len(same), [one.json().get("code") for one in answers]
    assert len({one.content for one in answers}) == 1
    assert await count(recorder, MONITORS) == 1


async def test_a_stored_answer_cannot_be_decrypted_with_anything_that_is_stored(recorder: Recorder) -> None:
    headers = {"Idempotency-Key": "7d1c6c1e-0f0a-4f0e-9d7b-1f2d3c4b5a69"}
    answer = await recorder.campus.http.post("/v1/recorder/monitors", json={"name": "a", "alert_webhook": TARGET}, headers=headers)
    assert answer.status_code == 200
    row = await in_snapshot(recorder.campus.site.storage, lambda connection: connection.execute(select(REPLIES)).one())
    for known in (row.key_digest, row.request_digest):
        for key in (known, sha256(known).digest()):
            with pytest.raises(InvalidTag):
                AESGCM(key).decrypt(row.sealed[:NONCE_BYTES], row.sealed[NONCE_BYTES:], None)
