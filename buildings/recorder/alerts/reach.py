"""Whom a monitor's alerts reach, in words for people, from the state of the monitor and its targets. Pure."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from buildings.recorder.models import Entry

TROUBLES: Mapping[str, str] = {
    "unconfirmed": "has not confirmed",
    "failing": "does not take alerts at the moment",
    "disabled": "is disabled",
}


class Reach(NamedTuple):
    tone: Literal["good", "warn", "bad", "quiet"]
    text: str


def reach_of(monitor: Entry) -> Reach:
    """What would happen if its agent stopped now. Only a target that took a message before counts as one that reaches somebody."""
    if monitor.paused:
        return Reach("quiet", "It is paused: nobody is alerted until it is resumed.")
    troubles = [f"{one.address} {TROUBLES.get(one.state, one.state)}" for one in monitor.targets if one.state not in ("ready", "untested")]
    untested = [one.address for one in monitor.targets if one.state == "untested"]
    if not (ready := [one.address for one in monitor.targets if one.state == "ready"]) and not untested:
        return Reach("bad", f"Nobody is alerted: {'; '.join(troubles) or 'it has no target'}.")
    event = (
        "When it recovers"
        if monitor.state == "dead"
        else "If it reports a failure"
        if monitor.deadline_at is None
        else "If it falls silent"
    )
    text = f"{event}, {' and '.join(ready + untested)} is alerted."
    if untested:
        text += f" Nothing was delivered to {' and '.join(untested)} yet: send a test alert."
    if troubles:
        text += f" Others are not: {'; '.join(troubles)}."
    return Reach("warn" if untested or troubles else "good", text)
