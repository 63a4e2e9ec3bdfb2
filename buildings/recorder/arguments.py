"""What callers give: every argument with its bounds and its meaning, once."""

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Strict

LEAST_PERIOD, LONGEST = 0.1, 525_600.0
LONGEST_NAME = 100


def one_line(name: str) -> str:
    """The name without space around it; ValueError when nothing, or more than a line, is left."""
    text = name.strip()
    if not text or not text.isprintable():
        raise ValueError("a name is one line of printable characters")
    return text


Name = Annotated[
    str,
    Field(min_length=1, max_length=LONGEST_NAME, description="What the monitor is called in alerts, such as 'nightly backup'."),
    AfterValidator(one_line),
]
Period = Annotated[
    float, Field(ge=LEAST_PERIOD, le=LONGEST, description="How often a beat is expected, in minutes; 0.1 to 525600, fractions allowed.")
]
Grace = Annotated[float, Field(ge=0, le=LONGEST, description="How long after a missed beat the alert waits, in minutes; 0 to 525600.")]
Webhook = Annotated[
    str | None,
    Field(
        max_length=2048,
        description="Where alerts are posted: a public https:// URL, signed JSON (Standard Webhooks), or a Discord webhook's URL.",
    ),
]
Email = Annotated[
    str | None,
    Field(max_length=254, description="Where alerts are mailed; needs a recorder key, and a click on the link that is sent there first."),
]
MonitorId = Annotated[str, Field(min_length=1, max_length=64, description="The monitor_id that register_monitor returned.")]
Secret = Annotated[str, Field(min_length=1, max_length=128, description="The secret that register_monitor, or takeover, returned.")]
OptionalSecret = Annotated[
    str | None,
    Field(max_length=128, description="The monitor's secret; not needed with the owning key, and when given it must be right."),
]
ExitCode = Annotated[int, Strict(), Field(ge=0, le=255)]
Status = Annotated[
    Literal["ok", "start", "fail"] | ExitCode,
    Field(
        description="ok: alive. start: a run begins, the next ok or fail ends it and gives its duration. fail: it failed, alert now."
        " Or a process's exit code, 0 to 255: 0 is ok, any other fail."
    ),
]
CapsuleValue = Annotated[
    Any,
    Field(
        description="Your state as JSON, up to 32,768 bytes, for whoever goes on if you die, such as"
        ' {"step": 7, "done": ["a"], "next": "b"}. Kept for monitors owned by a key: the last five.'
        " Leave it out to send none; null is stored as null."
    ),
]
Seq = Annotated[
    Annotated[int, Strict()] | None,
    Field(
        ge=0,
        le=2**53,
        description="A number that grows with each capsule: one below the last, or the last one with another capsule, is refused, so that"
        " a stale copy of you overwrites nothing.",
    ),
]
NextIn = Annotated[
    float | None,
    Field(
        ge=LEAST_PERIOD, le=LONGEST, description="Minutes until the next beat, this once, in place of the period: for a long step ahead."
    ),
]
After = Annotated[str | None, Field(max_length=64, description="The `next` of the page before; leave it out for the first page.")]
Limit = Annotated[int, Field(ge=1, le=100, description="Monitors per page.")]


def minutes(number: float) -> timedelta:
    """A number of minutes as a length of time."""
    return timedelta(minutes=number)
