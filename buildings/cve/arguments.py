"""What callers name: a CVE and a day, read strictly and refused with the code that the interface gives each."""

import re
from datetime import date
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from buildings.cve.cve_id import PATTERN, canonical
from campus import Problem

DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def cve_id(value: Any) -> str:
    """The identifier in upper case; Problem 400 for anything else."""
    found = canonical(value) if isinstance(value, str) else None
    if found is None:
        raise Problem(400, "invalid_cve_id", "cve_id is not a CVE identifier; write it as CVE-<year>-<number>, such as CVE-2021-44228")
    return found


def day(value: Any) -> date:
    """The day; Problem 400 for anything but YYYY-MM-DD."""
    if type(value) is date:
        return value
    try:
        if isinstance(value, str) and DAY.fullmatch(value):
            return date.fromisoformat(value)
    except ValueError:
        pass  # such as 2026-02-30: refused like any other
    raise Problem(400, "invalid_date", "date is not a calendar date; write it as YYYY-MM-DD, such as 2026-08-21")


CveId = Annotated[
    str,
    BeforeValidator(cve_id),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": PATTERN,
            "description": "CVE identifier in the form CVE-<year>-<number>, upper or lower case.",
            "examples": ["CVE-2021-44228"],
        }
    ),
]

Day = Annotated[
    date,
    BeforeValidator(day),
    WithJsonSchema(
        {"type": "string", "format": "date", "description": "Day of the list (UTC), as YYYY-MM-DD.", "examples": ["2026-08-21"]}
    ),
]
