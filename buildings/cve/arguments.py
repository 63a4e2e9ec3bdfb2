"""The arguments of the tools: how callers may write CVE identifiers and days, and the problems that explain a refusal."""

import re
from collections.abc import Mapping
from datetime import date
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from buildings.cve.numbers import PATTERN as PATTERN
from buildings.cve.numbers import SEQUENCES as SEQUENCES
from buildings.cve.numbers import canonical as canonical
from buildings.cve.numbers import number_of as number_of
from buildings.cve.numbers import spelled as spelled
from campus import Problem

RETRY_SECONDS = 300

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def read_cve_id(value: Any) -> str:
    found = canonical(value) if isinstance(value, str) else None
    if found is None:
        raise Problem(400, "invalid_cve_id", "cve_id is not a CVE identifier; write it as CVE-<year>-<number>, such as CVE-2021-44228")
    return found


CveId = Annotated[
    str,
    BeforeValidator(read_cve_id),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": PATTERN,
            "description": "CVE identifier in the form CVE-<year>-<number>, upper or lower case.",
            "examples": ["CVE-2021-44228"],
        }
    ),
]


OTHER_SCHEMES = r"(?:GHSA|PYSEC|RUSTSEC|GO|OSV|HSEC|DSA|DLA|USN|RHSA|ALSA|RLSA|SUSE-SU|SNYK)-[0-9A-Za-z:.-]{1,70}"
_OTHER_NAME = re.compile(OTHER_SCHEMES)


def other_name(value: Any) -> str | None:
    """A name of another scheme as it is; None for all else."""
    return value if isinstance(value, str) and _OTHER_NAME.fullmatch(value) else None


def read_name(value: Any) -> str:
    """A CVE identifier in upper case, or a name of another scheme as it is."""
    return other_name(value) or read_cve_id(value)


CveName = Annotated[
    str,
    BeforeValidator(read_name),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": f"{PATTERN[:-1]}$|^{OTHER_SCHEMES}$",
            "description": "CVE identifier in the form CVE-<year>-<number>, upper or lower case; or what another scheme calls it, such as "
            "a GHSA, PYSEC, RUSTSEC, GO, DSA, USN or RHSA identifier.",
            "examples": ["CVE-2021-44228", "GHSA-jfh8-c2jp-5v3q"],
        }
    ),
]


def read_day(value: Any, name: str = "date") -> date:
    """The day; raises Problem 400, which names the argument, for anything but YYYY-MM-DD."""
    if type(value) is date:
        return value
    try:
        if isinstance(value, str) and _DAY.fullmatch(value):
            return date.fromisoformat(value)
    except ValueError:
        pass  # such as 2026-02-30: refused like any other
    raise Problem(400, "invalid_date", f"{name} is not a calendar date; write it as YYYY-MM-DD, such as 2026-08-21")


Day = Annotated[
    date,
    BeforeValidator(read_day),
    WithJsonSchema(
        {"type": "string", "format": "date", "description": "Day of the list (UTC), as YYYY-MM-DD.", "examples": ["2026-08-21"]}
    ),
]


def _read_day_or_none(value: Any, *, name: str) -> date | None:
    return None if value is None else read_day(value, name)


DAY_OR_NONE = BeforeValidator(partial(_read_day_or_none, name="date"))
FROM_OR_NONE = BeforeValidator(partial(_read_day_or_none, name="the day 'from'"))
TO_OR_NONE = BeforeValidator(partial(_read_day_or_none, name="the day 'to'"))


def _day_schema(description: str, example: str) -> WithJsonSchema:
    about = {"description": description, "examples": [example]}
    return WithJsonSchema({"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], **about})


ForecastDay = Annotated[
    date | None, DAY_OR_NONE, _day_schema("Day of a past list (UTC), as YYYY-MM-DD. Default: the newest list.", "2026-08-21")
]
ChangesFrom = Annotated[
    date | None,
    FROM_OR_NONE,
    _day_schema("Earlier day (UTC), as YYYY-MM-DD. Default: the last day with a list before the later one.", "2026-08-20"),
]
ChangesTo = Annotated[date | None, TO_OR_NONE, _day_schema("Later day (UTC), as YYYY-MM-DD. Default: the newest list.", "2026-08-21")]
HistoryFrom = Annotated[
    date | None, FROM_OR_NONE, _day_schema("First day of EPSS (UTC), as YYYY-MM-DD. Default: the first day that is stored.", "2026-08-01")
]
HistoryTo = Annotated[date | None, TO_OR_NONE, _day_schema("Last day of EPSS (UTC), as YYYY-MM-DD. Default: the newest.", "2026-08-21")]

Limit = Annotated[int, Field(ge=1, le=100, description="Most entries to return, the first ones; `count` is of all.")]
BriefLimit = Annotated[int, Field(ge=1, le=25, description="Most entries to return, the first ones; `count` is of all.")]
FreshLimit = Annotated[int | None, Field(ge=1, le=10_000, description="Most entries to return, by rank; `count` is of all.")]
ChangesLimit = Annotated[int, Field(ge=1, le=25, description="Most changes of each kind to return, the first ones; the counts are of all.")]
HistoryLimit = Annotated[int, Field(ge=1, le=10_000, description="Most points of EPSS to return, the newest; `count` is of all.")]
RecordLimit = Annotated[int, Field(ge=1, le=100, description="Most lists, and most hits, to return, the newest; the counts are of all.")]
WithMethodology = Annotated[bool, Field(description="false leaves `methodology` out, which hardly ever changes.")]
MethodologyToo = Annotated[bool, Field(description="true adds `methodology`, which hardly ever changes.")]

Exposure = Literal["yes", "no", "unknown"]
Exposed = Annotated[
    Exposure,
    Field(
        description="Whether what you ask about can be reached from the internet by anyone: yes, no or unknown. CISA's deadlines depend on"
        " it; with unknown you get both."
    ),
]

CveIds = Annotated[
    list[str] | str | None,
    Field(
        description="Up to 1,000 CVE identifiers: a list, or one text that separates them by commas or white space.",
        examples=[["CVE-2021-44228", "CVE-2024-3094"]],
    ),
]
_REPORT = {
    "description": "Text of a scanner's report, up to 1 MB: JSON of Trivy, Grype, OSV-Scanner, govulncheck, npm, Snyk, GitHub, GitLab, "
    "Amazon and others, SARIF, CycloneDX, SPDX, OpenVEX, CSAF, XML of Nessus, Qualys and OpenVAS, CSV or plain text; its form is "
    "recognised by its content. Over HTTP it may also be the whole body of a POST, as it is or in a zip or gzip file, with a key up to "
    "20 MB."
}
Report = Annotated[str | bytes | None, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}]} | _REPORT)]
RequiredReport = Annotated[str | bytes, WithJsonSchema({"type": "string"} | _REPORT)]
ExposedPlaces = Annotated[
    list[Annotated[str, Field(max_length=200)]],
    Field(
        max_length=100,
        description="Patterns of hosts, images or files in the report that the internet reaches, such as web-*; `exposed` holds for the "
        "others.",
    ),
]
FindingsLimit = Annotated[
    int,
    Field(
        ge=0,
        le=1_000,
        description="Findings of a report that are returned; the counts are those of all. text/csv and text/markdown have all.",
    ),
]

PROBLEMS: Mapping[str, str] = {
    "invalid_date": "A date is not a calendar day written YYYY-MM-DD.",
    "invalid_cve_id": "A CVE identifier is not of the form CVE-<year>-<number>.",
    "no_cve_for_name": "OSV's records say no CVE, or several, that the name of another scheme stands for; `detail` says which. Nothing was"
    " charged.",
    "invalid_cve_ids": "An item of cve_ids contains characters other than ASCII; `detail` says which. Nothing was looked up.",
    "no_cve_ids": "cve_ids contains no CVE identifier, and there is no report.",
    "too_many_ids": "cve_ids takes up to 1,000 identifiers, and a report up to 20,000 different CVEs. Split them into several calls.",
    "report_too_large": "A report has up to 20 MB and 100,000 findings. Send it in parts, or only its identifiers.",
    "free_reports_used": "A few reports a day are read free for each network, and so many a minute for all. Try again after the time in"
    " Retry-After, or use a key.",
    "busy_with_reports": "Large reports of others are being read. Nothing was charged; try again after the time in Retry-After.",
    "unreadable_report": "The report cannot be read; `detail` says why. Nothing was looked up.",
    "invalid_window": "The earlier day of a comparison is not before the later one, or a history's first day is after its last.",
    "no_data_for_date": "The archive has no list for that day, none before it to compare with, or no EPSS in that window; `detail` names"
    " the days that it has.",
    "no_history": "Neither EPSS nor KEV has known the CVE since the archive began. Nothing was charged; cve_verdict says more.",
    "feed_limit_reached": "A key may have 20 feed addresses. Revoke one before you make another.",
    "no_such_feed": "There is no feed at this address; or the feed's address was revoked, or the key or client that made it has ended.",
    "watch_limit_reached": "A key may have 20 watches. Delete one before you make another.",
    "too_many_lines": "A stored report has up to 5,000 different lines. Split it by image or host into several watches.",
    "nothing_to_follow": "The report has no open finding with an identifier, so that a watch would never have news of it.",
    "no_such_watch": "Your key has no watch with this id. list_watches lists those that it has.",
    "no_mail_here": "This service sends no e-mail. Send alert_webhook instead.",
    "no_such_vendor": "KEV has no vendor with that name. /cve/vendors lists those that it has.",
    "no_list_yet": "No list has been made yet. Try again after the time in Retry-After.",
}


def no_list_yet(detail: str) -> Problem:
    return Problem(503, "no_list_yet", detail, headers={"Retry-After": str(RETRY_SECONDS)})
