"""Whom a monitor's alerts reach, in words for people, from the state of the monitor and its targets. Pure."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from buildings.recorder.models import Entry

TROUBLES: Mapping[str, str] = {
    "unconfirmed": "has not confirmed",
    "failing": "gets no alerts at the moment",
    "disabled": "is disabled",
}

EVENTS = {"dead": "If it falls silent", "failed": "If it reports a failure", "recovered": "When it recovers"}


class Reach(NamedTuple):
    tone: Literal["good", "warn", "bad", "quiet"]
    text: str


def reach_of(monitor: Entry) -> Reach:
    """What would happen if its agent stopped now. Only a target that took a message before counts as one that reaches somebody."""
    if monitor.paused:
        return Reach("quiet", "It is paused: nobody is alerted until it is resumed.")
    if monitor.muted_until is not None:
        return Reach("quiet", f"Its alerts are held: nobody is alerted until {monitor.muted_until:%Y-%m-%d %H:%M} UTC.")
    kind = "recovered" if monitor.state == "dead" else "failed" if monitor.deadline_at is None else "dead"
    ready, untested, troubles = [], [], []
    for one in monitor.targets:
        name = one.address if one.after_minutes is None else f"{one.address} (after {one.after_minutes:g} minutes)"
        if one.on is not None and kind not in one.on:
            troubles.append(f"{one.address} does not take this alert")
        elif one.state == "ready":
            ready.append(name)
        elif one.state == "untested":
            untested.append(name)
        else:
            troubles.append(f"{one.address} {TROUBLES.get(one.state, one.state)}")
    if not ready and not untested:
        return Reach("bad", f"Nobody is alerted: {'; '.join(troubles) or 'it has no target'}.")
    sure = [f"{' and '.join(ready)} is alerted"] if ready else []
    unsure = [f"an alert is sent to {' and '.join(untested)}, where nothing was delivered yet: send a test alert"] if untested else []
    failures = monitor.options.get("alert_after_failures", 1) if kind == "failed" else 1
    event = EVENTS[kind] if failures == 1 else f"If it reports {failures} failures in a row"
    text = f"{event}, {' and '.join(sure + unsure)}."
    if troubles:
        text += f" Not so: {'; '.join(troubles)}."
    return Reach("warn" if untested or troubles else "good", text)
