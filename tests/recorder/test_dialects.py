"""The dialects of a beat: what each shape of a request at its address becomes, row by row; and Healthchecks' paths."""

import gzip
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorder.recorders import Recorder

from buildings.recorder.beats.dialects import MOST_IGNORED, Said, signal_of, status_of
from buildings.recorder.beats.rules import past_beats
from buildings.recorder.beats.runs import OUTPUT_BYTES
from buildings.recorder.tables import MONITORS
from campus.storage import in_transaction

pytestmark = pytest.mark.anyio
FORM, JSON = "application/x-www-form-urlencoded", "application/json"
LOG = "x" * 9_000 + "the end"
SHAPES: Mapping[str, tuple[str, str, Mapping[str, str], bytes, str | int, str]] = {
    # what sends it: method, what follows the address, headers, body; what is recorded: status and the beginning of what is ignored
    "curl": ("GET", "", {}, b"", "ok", ""),
    "curl -X POST": ("POST", "", {}, b"", "ok", ""),
    "curl -T -": ("PUT", "", {}, b"done", "ok", ""),
    "wget --spider": ("HEAD", "", {}, b"", "ok", ""),
    "any other method": ("PATCH", "", {}, b"", "ok", ""),
    "a method without a body": ("DELETE", "", {}, b"", "ok", ""),
    "a trailing slash": ("GET", "/", {}, b"", "ok", ""),
    "start": ("GET", "/start", {}, b"", "start", ""),
    "start by HEAD": ("HEAD", "/start/", {}, b"", "start", ""),
    "start with a rid": ("GET", f"/start?rid={uuid4()}", {}, b"", "start", ""),
    "fail": ("GET", "/fail", {}, b"", "fail", ""),
    "fail with output": ("POST", "/fail", {"Content-Type": FORM}, b"Traceback: no space left", "fail", ""),
    "borgmatic's fail with a log": ("POST", "/fail", {}, LOG.encode(), "fail", ""),
    "log": ("POST", "/log", {}, b"half way", "log", ""),
    "exit code 0": ("GET", "/0", {}, b"", 0, ""),
    "exit code 1": ("POST", "/1", {}, b"", 1, ""),
    "exit code 255": ("GET", "/255/", {}, b"", 255, ""),
    "an exit code of Windows": ("GET", "/-1073741510", {}, b"", "fail", ""),
    "an exit code above 255": ("GET", "?status=3221225786", {}, b"", "fail", ""),
    "a word of the query": ("GET", "?status=fail", {}, b"", "fail", ""),
    "an exit code of the query": ("GET", "?status=7", {}, b"", 7, ""),
    "Uptime Kuma up": ("GET", "?status=up&msg=OK&ping=", {}, b"", "ok", ""),
    "Uptime Kuma down": ("GET", "?status=down&msg=no%20answer&ping=312", {}, b"", "fail", "ping: not known"),
    "Cronitor run": ("GET", "?state=run&series=a1&host=db1", {}, b"", "start", "host: not known"),
    "Cronitor complete": ("GET", "?state=complete&metric=count:3", {}, b"", "ok", "metric: not known"),
    "Cronitor fail": ("GET", "?state=fail&status_code=2&message=oops", {}, b"", "fail", ""),
    "Dead Man's Snitch": ("POST", "", {"Content-Type": FORM}, b"m=all%20good", "ok", ""),
    "Dead Man's Snitch with an exit code": ("GET", "?s=1&m=oops", {}, b"", 1, ""),
    "GitHub's job.status": ("GET", "?status=cancelled", {}, b"", "fail", ""),
    "systemd's SERVICE_RESULT": ("GET", "?status=exit-code", {}, b"", "fail", ""),
    "PowerShell's table": ("POST", "", {"Content-Type": FORM}, b"host=x&status=fail", "fail", "host: not known"),
    "PowerShell's text": ("POST", "/0", {"Content-Type": FORM}, b"a=b and more\r\n", 0, ""),
    "requests' parts": (
        *("POST", "", {"Content-Type": "multipart/form-data; boundary=b"}),
        *(b'--b\r\nContent-Disposition: form-data; name="status"\r\n\r\nfail\r\n--b--\r\n', "fail", ""),
    ),
    "our JSON": ("POST", "", {"Content-Type": JSON}, b'{"status": "start", "rid": "r1"}', "start", ""),
    "our JSON by PUT": ("PUT", "", {"Content-Type": JSON}, b'{"status": 3, "output": "no"}', 3, ""),
    "our JSON as a form": ("POST", "", {"Content-Type": FORM}, b'{"status": "fail"}', "fail", ""),
    "our JSON without a type": ("POST", "", {}, b' {"status": 1}', 1, ""),
    "our JSON by gzip": ("POST", "", {"Content-Encoding": "gzip"}, gzip.compress(b'{"status": "fail"}'), "fail", ""),
    "our JSON with more": ("POST", "", {"Content-Type": JSON}, b'{"status": "ok", "took": 3}', "ok", "took: not known"),
    "our JSON with a wrong member": ("POST", "", {"Content-Type": JSON}, b'{"next_in": -1, "rid": "r"}', "ok", "next_in: "),
    "other JSON": ("POST", "", {"Content-Type": JSON}, b'{"level": "error"}', "ok", ""),
    "a JSON list": ("POST", "", {"Content-Type": JSON}, b"[1, 2]", "ok", ""),
    "JSON that a shell broke": ("POST", "", {"Content-Type": JSON}, b'{"status": 1, "output": "said "no""}', 1, "the body: "),
    "JSON with a NUL": ("POST", "", {"Content-Type": JSON}, b'{"status": "ok", "output": "a\\u0000"}', "ok", ""),
    "a text": ("POST", "", {"Content-Type": "text/plain; charset=latin-1"}, b"caf\xe9", "ok", ""),
    "bytes": ("POST", "", {"Content-Type": "application/octet-stream"}, bytes(range(256)), "ok", ""),
    "what is too large to be ours": ("POST", "", {}, b'{"status": "fail", "output": "%b"}' % (b"x" * 300_000), "fail", ""),
    "an unknown parameter": ("GET", "?utm_source=mail", {}, b"", "ok", "utm_source: not known"),
    "no UTF-8": ("GET", "?msg=%ff%00", {}, b"", "ok", ""),
    "a word that nobody knows": ("GET", "?status=bogus", {}, b"", "log", "status: "),
    "no word": ("GET", "?status=", {}, b"", "log", "status: "),
    "a path that nobody knows": ("POST", "/failled", {}, b"", "log", "status: "),
    "JSON whose status is none": ("POST", "", {"Content-Type": JSON}, b'{"status": true}', "log", "status: "),
    "an encoding that nobody reads": ("POST", "", {"Content-Encoding": "br"}, b"\x0b\x02\x80", "log", "the body: "),
    "a success and a failure": ("POST", "/0", {}, b'{"status": "fail"}', "fail", ""),
}
DOWN = ("fail", 1, 2, 3, 7, 255)


async def test_every_shape_of_a_request_with_a_valid_secret_counts(recorder: Recorder) -> None:
    for shape, (method, rest, headers, body, status, ignored) in SHAPES.items():
        monitor = await recorder.register(key="recorder", period_minutes=10)
        await recorder.beat(monitor)
        before = await recorder.row(monitor)
        await recorder.pass_time(minutes=1)
        answer = await recorder.campus.http.request(method, monitor["beat_url"] + rest, headers=dict(headers), content=body)
        assert answer.status_code == 200, (shape, answer.text)
        row = await recorder.row(monitor)
        if status == "log":
            assert (row.beats, row.runs, row.deadline_at) == (1, 1, before.deadline_at), f"{shape}: kept with the runs, no sign of life"
        else:
            assert (row.beats, next(past_beats(row.history)).status) == (2, status), shape
        assert row.mode == ("failed" if status in DOWN else "up"), shape
        assert (row.deadline_at > before.deadline_at) == (status in ("ok", 0)) or status in (*DOWN, "start"), shape
        if method != "HEAD":
            told = answer.json()["ignored"]
            assert any(each.startswith(ignored) for each in told) if ignored else not told, (shape, told)


async def test_the_end_of_a_text_is_the_output_of_the_run(recorder: Recorder) -> None:
    for body, kind, kept in (
        (LOG.encode(), "text/plain", LOG[-OUTPUT_BYTES:]),
        ("ü".encode() * 5_000, FORM, "ü" * (OUTPUT_BYTES // 2)),
        (b'{"status": "ok", "output": "%b"}' % (b"y" * 9_000), JSON, "y" * OUTPUT_BYTES),
        ("fertig\r\n".encode("utf-16"), "text/plain", "fertig\r\n"),
        (b"\0\xff", "application/octet-stream", "\ufffd\ufffd"),
    ):
        assert signal_of("fail", b"", body, kind.encode()).arguments == {"status": "fail", "output": kept}
    parts = b'name="status"\r\n\r\n' * 60_000
    assert "output" in signal_of(None, b"", parts, b"multipart/form-data").arguments, "or is never done"
    assert signal_of(None, b"status=down&msg=no+answer", b"more").arguments == {"status": "fail", "output": "no answer\nmore"}


@given(
    st.one_of(st.none(), st.text(max_size=20)),
    st.one_of(st.binary(max_size=80), st.sampled_from([b"status=ok&status=fail", b"rid=%00&seq=x"])),
    st.one_of(st.binary(max_size=200), st.sampled_from([b'{"capsule": 1, "seq": null}', b'{"status": [], "rid": {}, "progress": true}'])),
    st.sampled_from([b"", b"application/json", FORM.encode(), b"multipart/form-data"]),
    st.sampled_from([b"", b"gzip"]),
)
def test_nothing_that_a_request_can_hold_is_an_error(said: str | None, query: bytes, body: bytes, kind: bytes, coding: bytes) -> None:
    arguments, ignored = signal_of(said, query, body, kind, coding)
    assert arguments.keys() <= set(Said._fields)
    assert len(ignored) <= MOST_IGNORED
    assert len(arguments.get("output", "").encode()) <= OUTPUT_BYTES
    statuses = [status_of(said)] if said is not None else []
    if None in statuses:
        assert arguments["status"] != "ok"


@given(st.text(max_size=12))
def test_no_word_is_a_success_unless_it_is_known_as_one(word: str) -> None:
    if status_of(word) in ("ok", 0):
        said = word.strip().lower()
        assert said in ("ok", "up", "complete", "success") or not said.strip("-0")


async def test_a_body_of_any_size_counts(recorder: Recorder) -> None:
    monitor = await recorder.register()

    async def parts() -> Any:
        for _ in range(30):
            yield b"x" * 65_536

    for number, (body, told) in enumerate(
        ((b"x" * 900_000, None), (b"x" * 1_500_000, "the body: it is over"), (parts(), "the body after")), start=1
    ):
        answer = await recorder.campus.http.post(f"{monitor['beat_url']}/fail", content=body)
        assert (answer.status_code, answer.json()["state"]) == (200, "dead")
        assert [each[: len(told or "")] for each in answer.json()["ignored"]] == ([told] if told else [])
        assert (await recorder.row(monitor)).beats == number
    answer = await recorder.campus.http.post(f"{monitor['ping_url']}/fail", content=b"x" * 1_500_000)
    assert (answer.status_code, answer.text[:22]) == (200, "OK\nignored: the body: ")
    stranger = monitor["beat_url"][:-1] + "~"
    assert (await recorder.campus.http.post(stranger, content=b"x" * 1_500_000)).status_code == 404


async def test_the_word_that_nobody_knows_is_kept_as_output(recorder: Recorder) -> None:
    monitor = await recorder.register()
    for path in ("/failled", "?status="):
        assert (await recorder.campus.http.get(monitor["beat_url"] + path)).status_code == 200
    shown = (await recorder.call("get_monitor", monitor_id=monitor["monitor_id"], secret=monitor["secret"])).data["last_runs"]
    assert [run["output"].partition(": ")[2] for run in shown] == ["none can be read", "failled"]


async def test_a_capsule_whose_seq_is_unknown_is_not_stored(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key)
    answer = await recorder.campus.http.post(monitor["beat_url"], json={"capsule": {"step": 1}, "seq": "first"})
    assert (answer.status_code, answer.json()["capsule_stored"]) == (200, False)
    assert answer.json()["ignored"][-1].startswith("capsule: not stored")
    answer = await recorder.campus.http.post(monitor["beat_url"], json={"capsule": {"step": 1}, "seq": 4, "took": 1})
    assert (answer.json()["capsule_stored"], answer.json()["ignored"]) == (True, ["took: not known"])


async def test_healthchecks_clients_ping_by_uuid(recorder: Recorder) -> None:
    monitor = await recorder.register(period_minutes=10)
    for method, rest, status in (
        ("GET", "", "ok"),
        ("HEAD", "/", "ok"),
        ("POST", "/start?rid=728b3763-ea80-4113-9fc0-f1b8adde7be4", "start"),
        ("POST", "/0", 0),
        ("PUT", "/log", 0),
        ("GET", "/fail/", "fail"),
    ):
        answer = await recorder.campus.http.request(method, monitor["ping_url"] + rest)
        assert (answer.status_code, answer.text) == (200, "" if method == "HEAD" else "OK"), rest
        assert answer.headers["ping-body-limit"] == str(OUTPUT_BYTES)
        assert next(past_beats((await recorder.row(monitor)).history)).status == status
    assert await recorder.alerts(monitor) == [("failed", 1)]
    answer = await recorder.campus.http.get(f"{monitor['ping_url']}/succes")
    assert answer.text.startswith("OK\nignored: status: ")
    assert (await recorder.row(monitor)).mode == "failed"
    for wrong in (f"/ping/{uuid4()}", "/ping/no-uuid", "/ping/no-key/no-slug?create=1", f"/ping/{uuid4()}/fail", "/ping/a/%00/1"):
        assert said(await recorder.campus.http.get(wrong)) == (404, "not found"), wrong
    replaced = monitor["ping_url"]
    await recorder.call("delete_monitor", monitor_id=monitor["monitor_id"], secret=monitor["secret"])
    assert said(await recorder.campus.http.get(replaced)) == (404, "not found")


async def test_a_stranger_who_tries_uuids_is_told_to_wait_and_hinders_nobody(recorder: Recorder) -> None:
    monitor = await recorder.register()
    answers = [said(await recorder.campus.http.get(f"/ping/{uuid4()}")) for _ in range(61)]
    assert answers == [(404, "not found")] * 60 + [(429, "rate limited")]
    assert said(await recorder.campus.http.get(monitor["ping_url"])) == (200, "OK")
    rest = [said(await recorder.campus.http.get(monitor["ping_url"])) for _ in range(120)]
    assert rest == [(200, "OK")] * 119 + [(429, "rate limited")]


async def test_a_ping_key_pings_by_slug_and_creates_the_monitor(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    first = await recorder.register(key=key, slug="first")
    owner = (await recorder.row(first)).owner
    ping, reads = [(await recorder.call("make_fleet_key", key=key, kind=kind)).data["key"] for kind in ("ping", "read")]
    http: httpx.AsyncClient = recorder.campus.http
    assert said(await http.get(f"/ping/{ping}/first/start")) == (200, "OK")
    assert (await recorder.row(first)).beats == 1
    slugs = (f"{reads}/first", f"{ping}/second", f"{ping}/SECOND?create=1", f"{reads}/second?create=1", ping)
    for wrong in slugs:
        assert said(await http.get(f"/ping/{wrong}")) == (404, "not found"), wrong
    assert said(await http.post(f"/ping/{ping}/second/fail?create=1", content=b"no space")) == (201, "Created")
    assert said(await http.get(f"/ping/{ping}/second?create=1")) == (200, "OK")
    chosen = MONITORS.select().where(MONITORS.c.slug == "second")
    second = (await in_transaction(recorder.campus.site.storage, lambda connection: connection.execute(chosen))).one()
    assert (second.beats, second.period, second.owner) == (2, timedelta(days=1), owner)
    assert await recorder.alerts({"monitor_id": second.id}) == [("failed", 1), ("recovered", 1)]
    for number in range(18):
        assert (await http.get(f"/ping/{ping}/more-{number}?create=1")).status_code == 201
    refused = await http.get(f"/ping/{ping}/one-too-many?create=1")
    assert (refused.status_code, "all the monitors" in refused.text) == (409, True)


def said(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.text
