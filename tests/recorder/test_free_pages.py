"""The page of a monitor without a key, what its address authorizes, and the monitor's move to a key in place."""

import re
from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from pages.hostile import ALL_AT_ONCE, harm_in
from recorder.receivers import Receiver
from recorder.recorders import Recorder
from recorder.test_pages import HTML, page_of, press
from sqlalchemy import update

from buildings.recorder.beats.rules import SHOWN_WITHOUT_KEY
from buildings.recorder.jobs import tidy
from buildings.recorder.monitors.credentials import page_token
from buildings.recorder.runtime import FREE_STREAMS, FREE_VIEWS_PER_MINUTE
from buildings.recorder.tables import OWNERS
from campus.storage import in_transaction
from campus.testing import ORIGIN

pytestmark = pytest.mark.anyio


def path_of(monitor: Mapping[str, Any]) -> str:
    path = monitor["page_url"].removeprefix(ORIGIN)
    assert path == f"/recorder/free/{page_token(monitor['secret'])}"
    return str(path)


async def test_a_monitor_without_a_key_has_a_page_at_its_own_address_that_no_cache_or_engine_keeps(
    recorder: Recorder, receiver: Receiver
) -> None:
    monitor = await recorder.register(receiver.url(), name="nightly <b>")
    at = path_of(monitor)
    page = await page_of(recorder, at, None)
    assert (page.status_code, page.headers["x-robots-tag"], page.headers["referrer-policy"]) == (200, "noindex", "same-origin")
    assert (monitor["secret"] in page.text, "og:url" in page.text, 'name="robots" content="noindex"' in page.text) == (
        False,
        False,
        True,
    )
    assert re.findall(r'href="(https?://[^"]+)"', page.text) == [], "no address of another site"
    assert "waiting for the first beat" in page.text
    beaten = await recorder.beat(monitor, capsule={"said": ALL_AT_ONCE}, seq=3)
    assert (beaten.data["capsule_stored"], "the monitor's page shows" in beaten.data["note"]) == (False, True)
    shown = (await page_of(recorder, at, None)).text
    assert harm_in(shown) == []
    begin, end = (shown.index(f"{mark} UNTRUSTED DATA") for mark in ("<code>BEGIN", "<code>END"))
    assert begin < shown.index('"said"') < end
    for big in ("x" * SHOWN_WITHOUT_KEY, ""):
        assert (await recorder.beat(monitor, capsule=big)).status == 200
        assert ('"said"' in (await page_of(recorder, at, None)).text) == bool(big), "only the last one, and no larger one"
    as_data = (await recorder.campus.http.get(at)).json()
    assert ("capsules" in as_data, as_data["monitor"]["capsule"]) == (False, None), "a program is returned none"
    assert (await page_of(recorder, f"{at[:-1]}x", None)).status_code == 404
    assert (await page_of(recorder, f"/recorder/{monitor['monitor_id']}", await recorder.campus.key("recorder"))).status_code == 404


async def test_the_address_of_the_page_authorizes_what_the_secret_does_but_no_beat(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url())
    at = path_of(monitor)
    token = at.rpartition("/")[2]
    assert (await recorder.beat({**monitor, "secret": token})).status == 404
    assert (await recorder.call("fetch_capsule", monitor_id=monitor["monitor_id"], secret=token)).status == 402
    assert (await press(recorder, f"{at}/pause", None, page=at)).headers["location"] == at
    assert "nobody is alerted until it is resumed" in (await page_of(recorder, at, None)).text
    assert (await press(recorder, f"{at}/resume", None, page=at)).status_code == 303
    sent = await press(recorder, f"{at}/test", None, page=at)
    assert sent.headers["location"] == f"{at}?sent=test"
    await recorder.deliver()
    assert "If it falls silent, https://localhost" in (await page_of(recorder, at, None)).text
    changed = await press(recorder, f"{at}/update", None, page=at, name="moved", alert_webhook=receiver.url("/new"))
    assert ("whsec_" in changed.text, f'href="{at}"' in changed.text) == (True, True)
    assert (await press(recorder, f"{at}/takeover", None, page=at)).status_code == 402
    assert (await press(recorder, f"{at}/claim", None, page=at)).status_code == 402
    key = await recorder.campus.key("recorder")
    keyed = await recorder.register(receiver.url("/keyed"), key=key)
    assert keyed["page_url"] is None
    token = page_token(keyed["secret"])
    assert (await page_of(recorder, f"/recorder/free/{token}", key)).status_code == 404
    assert (await recorder.call("pause_monitor", monitor_id=keyed["monitor_id"], secret=token)).status == 404
    assert (await press(recorder, f"{at}/delete", None, page=at)).headers["location"] == "/recorder"
    assert (await page_of(recorder, at, None)).status_code == 404


async def test_a_stranger_opens_no_more_pages_than_a_minute_allows_and_takes_no_stream_of_a_key(recorder: Recorder) -> None:
    at = path_of(await recorder.register())
    answers = [(await recorder.campus.http.get(f"{at}x", headers=HTML)).status_code for _ in range(FREE_VIEWS_PER_MINUTE + 1)]
    assert answers == [404] * FREE_VIEWS_PER_MINUTE + [429]
    refused = await recorder.campus.http.get(at, headers=HTML)
    assert (refused.status_code, int(refused.headers["retry-after"]) > 0) == (429, True)
    async with recorder.calling_from("203.0.113.9") as other:
        assert (await other.campus.http.get(at, headers=HTML)).status_code == 200
    state = recorder.campus.site.state
    assert state.free_streams is not state.streams
    assert state.free_streams._open.limit == FREE_STREAMS


async def test_a_monitor_moves_to_a_key_in_place_with_its_alerts(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(receiver.url(), name="nightly")
    at = path_of(monitor)
    await recorder.beat(monitor, capsule={"step": 1}, seq=7)
    await recorder.beat(monitor, status="fail")
    (before,) = await recorder.targets()
    assert "Move it to my key" not in (await page_of(recorder, at, None)).text
    moved = await press(recorder, f"{at}/claim", key, page=at)
    assert (moved.status_code, moved.headers["location"]) == (303, f"/recorder/{monitor['monitor_id']}")
    assert (await page_of(recorder, at, key)).status_code == 404, "the free page ends"
    (entry,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
    assert (entry["state"], entry["beats"], entry["undelivered"]) == ("dead", 2, 1)
    (after,) = await recorder.targets()
    assert (after.id, after.secret, after.owner is None) == (before.id, before.secret, False)
    await recorder.deliver()
    assert receiver.types == ["monitor.failed"], "what waited is not lost"
    capsule = (await recorder.call("fetch_capsule", monitor_id=monitor["monitor_id"], key=key)).data
    assert (capsule["last"]["capsule"], capsule["last"]["seq"]) == ({"step": 1}, 7)
    assert (await recorder.beat(monitor, capsule={"step": 0}, seq=6)).code == "stale_seq"
    assert (await recorder.beat(monitor, capsule={"step": 2}, seq=8)).data["capsule_stored"] is True
    assert (await recorder.call("takeover", monitor_id=monitor["monitor_id"], key=key)).code == "not_dead"
    again = await recorder.register(receiver.url(), name="free again")
    assert again["tier"] == "free", "the address is free for one monitor without a key"
    await recorder.pass_time(days=40)
    await tidy(recorder.campus.site)
    assert await recorder.row(monitor) is not None, "a key's monitor is not deleted for its silence"


async def test_a_monitor_that_moves_to_a_key_with_a_target_at_its_address_uses_that_one_and_its_alerts_follow(
    recorder: Recorder, receiver: Receiver
) -> None:
    key = await recorder.campus.key("recorder")
    own = await recorder.register(receiver.url(), key=key)
    monitor = await recorder.register(receiver.url())
    await recorder.beat(monitor, status="fail")
    claimed = await recorder.call("claim_monitor", monitor_id=monitor["monitor_id"], secret=monitor["secret"], key=key)
    assert (claimed.status, claimed.data["webhook_secret"], len(claimed.data["notes"])) == (200, own["webhook_secret"], 1)
    assert len(await recorder.targets()) == 1
    await recorder.deliver()
    assert receiver.types == ["monitor.failed"]
    again = await recorder.call("claim_monitor", monitor_id=monitor["monitor_id"], secret=monitor["secret"], key=key)
    assert (again.status, again.data["webhook_secret"]) == (200, None), "a retry is no second move"


@pytest.mark.both_databases
async def test_of_two_keys_that_claim_a_monitor_at_once_one_has_it_and_is_charged(recorder: Recorder, receiver: Receiver) -> None:
    keys = [await recorder.campus.key("recorder") for _ in range(2)]
    monitor = await recorder.register(receiver.url())
    answers: list[tuple[int, str | None]] = []

    async def claim(key: str) -> None:
        answer = await recorder.call("claim_monitor", monitor_id=monitor["monitor_id"], secret=monitor["secret"], key=key)
        answers.append((answer.status, answer.code))

    async with anyio.create_task_group() as tasks:
        for key in keys:
            tasks.start_soon(claim, key)
    assert sorted(answers, key=str) == [(200, None), (409, "claimed")]
    fleets = [(await recorder.call("fleet_status", key=key)).data["count"] for key in keys]
    assert sorted(fleets) == [0, 1]
    full = await recorder.campus.key("recorder")
    one = await recorder.register(receiver.url("/one"), key=full)
    owner = (await recorder.row(one)).owner
    await in_transaction(
        recorder.campus.site.storage,
        lambda connection: connection.execute(update(OWNERS).where(OWNERS.c.lineage == owner).values(monitors=20)),
    )
    other = await recorder.register(receiver.url("/other"))
    refused = await recorder.call("claim_monitor", monitor_id=other["monitor_id"], secret=other["secret"], key=full)
    assert (refused.status, refused.code) == (409, "monitor_limit_reached")
    assert (await recorder.row(other)).owner is None
    assert (await page_of(recorder, path_of(other), None)).status_code == 200, "a refused move changes nothing"
