"""The arguments of the tools, each defined once, with its bounds and its description."""

import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, Strict
from pydantic_core import PydanticKnownError

from buildings.recorder.monitors.state_machine import StateWord
from campus.features.alerts import CHAT_SERVICES, visible_name

LEAST_PERIOD, LONGEST = 0.1, 525_600.0
FIRST_YEAR, LAST_YEAR = 1970, 9_000
LONGEST_NAME = 100
EXIT_CODE = re.compile("[0-9]{1,3}")
STATUSES = "'ok', 'start', 'idle', 'fail', 'log' or an exit code from 0 to 255; the beat was not counted"

Name = Annotated[
    str,
    Field(min_length=1, max_length=LONGEST_NAME, description="Name of the monitor, shown in alerts, such as 'nightly backup'."),
    AfterValidator(visible_name),
]
Period = Annotated[
    float, Field(ge=LEAST_PERIOD, le=LONGEST, description="Longest expected time between two beats, in minutes; fractions allowed.")
]
Grace = Annotated[float, Field(ge=0, le=LONGEST, description="Time between a missed beat and the alert, in minutes; fractions allowed.")]
Webhook = Annotated[
    str | None,
    Field(
        max_length=2048,
        description="URL that alerts are sent to: a public https:// address, which receives signed JSON (Standard Webhooks) with a `text` "
        f"that chat services show, or that of {CHAT_SERVICES}.",
        examples=["https://example.com/hooks/campus"],
    ),
]
Email = Annotated[
    str | None,
    Field(
        max_length=254,
        description="E-mail address that alerts are sent to. Needs a recorder key; the recipient must first confirm by e-mail.",
    ),
]


class TargetArgument(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str = Field(min_length=1, max_length=2048, description="As alert_webhook or alert_email.")
    on: list[Literal["dead", "failed", "stuck", "recovered", "reminder"]] | None = Field(
        default=None, min_length=1, description="Only these kinds. Of recoveries and reminders it hears if it was told of the trouble."
    )
    after_minutes: float | None = Field(
        default=None, ge=LEAST_PERIOD, le=LONGEST, description="Only if a trouble lasts so long, unacknowledged."
    )


Targets = Annotated[
    list[TargetArgument] | None,
    Field(max_length=10, description="Further alert targets, with conditions. Needs a recorder key."),
]
MonitorId = Annotated[str, Field(min_length=1, max_length=64, description="Id of the monitor.")]
Secret = Annotated[str, Field(min_length=1, max_length=128, description="The secret that register_monitor or takeover returned.")]
OptionalSecret = Annotated[
    str | None,
    Field(max_length=128, description="Its secret; not needed with the owning key."),
]


def _status(value: Any) -> Any:
    """A status; an exit code that is written as text, as shells write it, as a number. One error for all else, not one for each form."""
    read = int(value) if isinstance(value, str) and EXIT_CODE.fullmatch(value) else value
    if read in ("ok", "start", "idle", "fail", "log") or (isinstance(read, int) and 0 <= read <= 255):
        return read
    raise PydanticKnownError("literal_error", {"expected": STATUSES})


ExitCode = Annotated[int, Strict(), Field(ge=0, le=255)]
Status = Annotated[
    Literal["ok", "start", "idle", "fail", "log"] | ExitCode,
    BeforeValidator(_status),
    Field(
        description="start: a run begins; the next ok or fail ends it. idle: you wait for your user or for work; no deadline runs until"
        " your next beat (with next_in, that one does). fail: send the alert now. log: keep the output, change nothing. Or the exit code"
        " of a process: 0 means ok, any other value fail."
    ),
]
CapsuleValue = Annotated[
    Any,
    Field(
        description="Your state as JSON, at most 32,768 bytes, for a replacement that continues your work, such as"
        ' {"step": 7, "done": ["a"], "next": "b"}. Stored for monitors that a key owns: the last five.'
        " Of several nulls in a row one is stored."
    ),
]
Seq = Annotated[
    Annotated[int, Strict()] | None,
    Field(
        ge=0,
        le=2**53,
        description="Number of the capsule, increased by you with each one. A lower one, or the same with another capsule, is refused, so"
        " that a stale copy of you overwrites nothing.",
    ),
]
NextIn = Annotated[
    float | None,
    Field(ge=LEAST_PERIOD, le=LONGEST, description="Minutes until the next beat. Replaces the period once; use it before a long step."),
]
Schedule = Annotated[
    str | None,
    Field(
        max_length=200,
        description="When beats are expected, instead of the period: cron such as '17 3 * * *', or systemd's OnCalendar such as"
        " 'Mon..Fri 09:00', or several of these, a line each. A beat before such a time does not count for it.",
    ),
]
Timezone = Annotated[
    str | None, Field(max_length=64, description="Time zone of schedule, hours and maintenance, such as Europe/Berlin; by default UTC.")
]


def _storable(moment: datetime) -> datetime:
    """A time that stays one in every time zone, and after the clock was corrected."""
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"must be in the years {FIRST_YEAR} to {LAST_YEAR}")
    return moment


Time = Annotated[AwareDatetime, AfterValidator(_storable)]
DueAt = Annotated[
    Time | Literal[""] | None,
    Field(description="For something that happens once: when its one beat is expected. No deadline runs after it."),
]
Hours = Annotated[
    str | None,
    Field(max_length=200, description="When beats are expected at all, such as 'Mon..Fri 09:00-17:00'; outside no deadline passes."),
]
Maintenance = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=100)]] | None,
    Field(
        max_length=20,
        description="Windows in which nothing is expected and no alert is raised: 'Sun 02:00-04:00', or from/to as"
        " 2026-12-24T20:00/2026-12-27T06:00.",
    ),
]


def _none_or(least: float) -> AfterValidator:
    """0 ends an option; a number between it and `least` is none."""

    def check(number: float | None) -> float | None:
        if number is not None and 0 < number < least:
            raise PydanticKnownError("greater_than_equal", {"ge": least})
        return number

    return AfterValidator(check)


RunMinutes = Annotated[
    float | None,
    Field(ge=0, le=LONGEST, description="Longest time that a run may take, in minutes from its start beat; 0: the grace, as by default."),
    _none_or(LEAST_PERIOD),
]
Failures = Annotated[int | None, Field(ge=1, le=100, description="How many failures in a row raise the alert; by default 1.")]
Remind = Annotated[
    float | None,
    Field(ge=0, le=LONGEST, description="Minutes between reminders while it is down and nobody acknowledges, at least 1; 0: none."),
    _none_or(1),
]
ManualResume = Annotated[bool | None, Field(description="A pause lasts until resume_monitor is called: a beat does not end it.")]
StuckAfter = Annotated[
    int | None,
    Field(
        ge=0,
        le=1_000,
        description="How many beats in a row with the same `progress`, or calls of a tool with the same arguments, make an agent stuck:"
        " at least 2; 0: none.",
    ),
    _none_or(2),
]
StuckTakeover = Annotated[bool | None, Field(description="A stuck agent can be taken over, as a dead one.")]
LONGEST_SLUG = 60
Snooze = Annotated[float | None, Field(ge=0, le=LONGEST, description="Minutes from now; 0 ends it: held alerts are raised at once.")]
SnoozeUntil = Annotated[Time | None, Field(description="When it ends, instead of minutes: within a year.")]
SLUG = r"^[a-z0-9][a-z0-9_-]*$"


def is_slug(text: str) -> bool:
    return len(text) <= LONGEST_SLUG and re.fullmatch(SLUG, text) is not None


Slug = Annotated[
    str | None,
    Field(
        max_length=LONGEST_SLUG,
        pattern=SLUG,
        description="Name for addresses, of small letters, digits, - and _; unique for the key: registering with the slug of a monitor"
        " changes that one.",
    ),
]
Tags = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=40, pattern=r"^\S+$")]] | None,
    Field(max_length=20, description="Words to filter by, without spaces."),
]
RunId = Annotated[
    str | None, Field(max_length=64, description="Id of the run that this beat starts or ends, where runs overlap; any text of yours.")
]
Output = Annotated[str | None, Field(description="What the run wrote; the last 8 KB are kept, and shown in the alert.")]
Progress = Annotated[
    str | int | float | None,
    Field(description="How far you are, such as a step: with stuck_after, an alert is sent when it stays the same."),
]
LONGEST_DESCRIPTION = 1_000
Description = Annotated[
    str | None,
    Field(
        max_length=LONGEST_DESCRIPTION,
        description="What it watches and what to do when it is dead, such as a link to the runbook: shown in each alert.",
    ),
]
TagFilter = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=40)]], Field(max_length=20, description="Only monitors that have all of these tags.")
]
StateFilter = Annotated[
    StateWord | None,
    Field(description="Only monitors in this state; alive: in none of the others."),
]
NameFilter = Annotated[str | None, Field(max_length=LONGEST_NAME, description="Only monitors whose name contains this text.")]
SlugFilter = Annotated[str | None, Field(max_length=LONGEST_SLUG, description="Only the monitor with this slug.")]
RunsShown = Annotated[int, Field(ge=0, le=100, description="Number of last runs, each with the end of its output.")]
BeatsShown = Annotated[int, Field(ge=0, le=200, description="Number of last beats.")]
FleetKeyKind = Annotated[
    Literal["ping", "read"], Field(description="ping: sends beats to the key's monitors by their slugs. read: reads their states.")
]
Hint = Annotated[str, Field(min_length=1, max_length=64, description="`hint` of the key, from list_fleet_keys.")]
Confirm = Annotated[Literal["delete everything"], Field(description="The words 'delete everything'.")]
Checks = Annotated[
    str,
    Field(min_length=1, description="The answer of Healthchecks' GET /api/v3/checks/. Over HTTP it is the body."),
]
After = Annotated[str | None, Field(max_length=64, description="`next` from the previous page. Leave it out for the first page.")]
Limit = Annotated[int, Field(ge=1, le=100, description="Number of monitors per page.")]


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)
