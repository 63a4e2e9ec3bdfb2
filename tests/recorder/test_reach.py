"""What pages promise of alerts follows from the state of the monitor and its targets, on each page that says anything."""

import re
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from recorder.receivers import Mailbox
from recorder.recorders import Recorder
from recorder.test_pages import page_of, press

from buildings.recorder.alerts.reach import reach_of
from buildings.recorder.models import Entry, TargetView
from campus.features.alerts import TargetState

STATES = get_args(TargetState.__value__ if hasattr(TargetState, "__value__") else TargetState)
TEMPLATES = Path(__file__).parents[2] / "buildings" / "recorder" / "templates"
NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)
PROMISES = re.compile(r"(?:is|are|be) alerted|alerts? (?:are|is) (?:sent|delivered)|reach(?:es)? you", re.IGNORECASE)
SAID_BY = {"fleet.html": 'reach.tone == "good"'}
"""The template that promises something itself, and the condition beside it. All others show what reach_of says."""


def entry_of(*states: str, state: str = "alive", paused: bool = False, deadline_at: datetime | None = NOON) -> Entry:
    targets = [
        TargetView.model_construct(
            kind="webhook", address=f"{place}-{one}", state=one, reason=None, undelivered=0, on=None, after_minutes=None
        )  # type: ignore[arg-type]
        for place, one in enumerate(states)
    ]
    return Entry.model_construct(targets=tuple(targets), state=state, paused=paused, deadline_at=deadline_at, muted_until=None, options={})  # type: ignore[arg-type]


def test_only_a_target_that_took_a_message_is_said_to_reach_somebody() -> None:
    assert set(STATES) == {"ready", "untested", "unconfirmed", "failing", "disabled"}
    for states in [(), *((one,) for one in STATES), *product(STATES, repeat=2)]:
        tone, text = reach_of(entry_of(*states))
        said = text.partition(" is alerted")[0] if " is alerted" in text and not text.startswith("Nobody") else ""
        for place, one in enumerate(states):
            assert (f"{place}-{one}" in said) == (one == "ready"), text
            assert f"{place}-{one}" in text, "each target is named"
        assert (tone == "good") == (bool(states) and set(states) == {"ready"}), text
        assert (tone == "bad") == text.startswith("Nobody is alerted") == (not {"ready", "untested"} & set(states)), text
        assert ("send a test alert" in text) == ("untested" in states)
        paused = reach_of(entry_of(*states, paused=True))
        assert paused == ("quiet", "It is paused: nobody is alerted until it is resumed.")


def test_a_monitor_without_a_deadline_or_that_is_dead_is_not_promised_an_alert_of_its_silence() -> None:
    assert reach_of(entry_of("ready")).text == "If it falls silent, 0-ready is alerted."
    assert reach_of(entry_of("ready", deadline_at=None)).text == "If it reports a failure, 0-ready is alerted."
    patient = entry_of("ready", deadline_at=None).model_copy(update={"options": {"alert_after_failures": 3}})
    assert reach_of(patient).text == "If it reports 3 failures in a row, 0-ready is alerted."
    assert reach_of(entry_of("ready", state="dead")).text == "When it recovers, 0-ready is alerted."
    assert reach_of(entry_of("unheard of")).text == "Nobody is alerted: 0-unheard of unheard of.", "an unknown state reassures nobody"


def test_held_alerts_conditions_and_delays_are_said() -> None:
    held = entry_of("ready").model_copy(update={"muted_until": NOON})
    assert reach_of(held) == ("quiet", "Its alerts are held: nobody is alerted until 2026-08-21 12:00 UTC.")
    entry = entry_of("ready", "ready")
    late, other = (
        one.model_copy(update=more) for one, more in zip(entry.targets, ({"after_minutes": 30}, {"on": ("recovered",)}), strict=True)
    )
    said = reach_of(entry.model_copy(update={"targets": (late, other)}))
    assert said == ("warn", "If it falls silent, 0-ready (after 30 minutes) is alerted. Not so: 1-ready does not take this alert.")
    assert reach_of(entry.model_copy(update={"targets": (other,)})).tone == "bad"
    assert reach_of(entry.model_copy(update={"targets": (other,), "state": "dead"})).tone == "good", "it hears of the recovery"


def test_no_template_promises_an_alert_by_itself() -> None:
    for template in TEMPLATES.glob("*.html"):
        for line in template.read_text().splitlines():
            if PROMISES.search(line):
                assert SAID_BY.get(template.name, "nothing") in line, f"{template.name}: {line}"


@pytest.mark.anyio
async def test_every_page_says_that_nobody_is_alerted_until_a_mailbox_confirms(recorder: Recorder, mailbox: Mailbox) -> None:
    key = await recorder.campus.key("recorder")
    made = await press(recorder, "/recorder", key, name="nightly", alert_email="ann@example.com")
    found = re.search(r"/beat/(mon_\w+)/(\w+)", made.text)
    assert found is not None
    at = f"/recorder/{found[1]}"
    await recorder.call("heartbeat", monitor_id=found[1], secret=found[2])

    async def said() -> list[str]:
        pages = [(await page_of(recorder, path, key)).text for path in (at, f"{at}/heard", "/recorder")]
        assert "We heard you" in pages[1]
        return pages

    for page in (await said())[:2]:
        assert "Nobody is alerted: ann@example.com has not confirmed." in page
        assert "is alerted." not in page
    assert ("unconfirmed" in (await said())[2], "reach you" in (await said())[2]) == (True, False)
    await recorder.deliver()
    await recorder.campus.http.post(mailbox.link("confirm"))
    for page in (await said())[:2]:
        assert "If it falls silent, ann@example.com is alerted.<" in page
    assert "reach you" in (await said())[2]
    await press(recorder, f"{at}/pause", key, page=at)
    for page in (await said())[:2]:
        assert "is alerted." not in page
    assert ("none while paused" in (await said())[2], "reach you" in (await said())[2]) == (True, False)
