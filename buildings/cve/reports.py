"""Finds CVE identifiers in lists and in the reports of scanners, whatever their format: by their form. Pure."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from buildings.cve.arguments import canonical
from campus import Problem

MOST_IDS = 1_000
LONGEST_REPORT = 1_000_000
LARGEST_REPORT = 1 << 20
"""The bytes of a request with a report; a JSON text needs a backslash before each quotation mark."""
SHOWN_MALFORMED = 20
LONGEST_SHOWN = 40

WELL_FORMED = re.compile(r"(?<![^\W_])CVE-[0-9]{4}-[0-9]{4,12}(?![^\W_])", re.IGNORECASE)
DASHES = "\\-_\u2010-\u2015\u2212\ufe58\ufe63\uff0d"
LOOKALIKE = re.compile(
    rf"(?<![^\W_])[C\uff23\u0421][V\uff36][E\uff25\u0415][{DASHES}]\d[^\W_]{{0,19}}(?:[{DASHES}][^\W_]{{1,20}})?", re.IGNORECASE
)
"""What looks like an identifier to a person: with other dashes, digits or letters, or with a part missing."""


@dataclass(frozen=True)
class FoundIds:
    """The distinct identifiers of a request in upper case, in the order of their first mention, and what only looks like one."""

    ids: Sequence[str]
    malformed: Sequence[str]


def find_ids(cve_ids: Sequence[str] | str | None, report: str | None) -> FoundIds:
    """The identifiers in a list, or in a text of them, and in a report.

    Raises Problem 422 when there are none, more than 1,000, or a listed one that is spelled with other characters than ASCII:
    its neighbors would be answered, and it would be missed.
    """
    listed = _parts(cve_ids)
    _check(listed, report)
    ids: dict[str, None] = {}
    malformed: dict[str, None] = {}
    for text in listed:
        if (cve_id := canonical(text)) is not None:
            ids[cve_id] = None
        else:
            malformed[text[:LONGEST_SHOWN]] = None
    for match in WELL_FORMED.finditer(report or ""):
        if (cve_id := canonical(match[0])) is not None:
            ids[cve_id] = None
            if len(ids) > MOST_IDS:
                raise too_many_ids()
    if len(ids) > MOST_IDS:
        raise too_many_ids()
    malformed |= dict.fromkeys(_lookalikes(report or ""))
    if not ids:
        raise no_ids(len(malformed))
    return FoundIds(tuple(ids), tuple(malformed))


def _parts(cve_ids: Sequence[str] | str | None) -> list[str]:
    """The identifiers of a list; a text may separate them by commas, semicolons or white space."""
    if isinstance(cve_ids, str):
        return [part for part in re.split(r"[,;\s]+", cve_ids) if part]
    return [text.strip() for text in cve_ids or () if text.strip()]


def _check(listed: Sequence[str], report: str | None) -> None:
    if len(listed) > MOST_IDS:
        raise too_many_ids()
    if report is not None and len(report) > LONGEST_REPORT:
        detail = f"the report has over {LONGEST_REPORT:,} characters; send it in parts, or only its identifiers in cve_ids"
        raise Problem(413, "report_too_large", detail)
    for place, text in enumerate(listed):
        if not text.isascii():
            strange = next(character for character in text if not character.isascii())
            raise Problem(
                422,
                "invalid_cve_ids",
                f"item {place + 1} of cve_ids contains {unicodedata.name(strange, 'a character')} (U+{ord(strange):04X});"
                " write identifiers as CVE-<year>-<number> in ASCII letters, digits and hyphens",
            )


def _lookalikes(report: str) -> Iterable[str]:
    for match in LOOKALIKE.finditer(report):
        if canonical(match[0]) is None:
            yield match[0][:LONGEST_SHOWN]


def too_many_ids() -> Problem:
    """422: more identifiers than one call takes."""
    return Problem(422, "too_many_ids", f"there are more than {MOST_IDS:,} different CVE identifiers; split them into several calls")


def no_ids(malformed: int) -> Problem:
    """422: nothing to look up."""
    odd = f", but {malformed} that only look like one" if malformed else ""
    detail = f"there is no CVE identifier in cve_ids or report{odd}; write them as CVE-<year>-<number>, such as CVE-2021-44228"
    return Problem(422, "no_cve_ids", detail)
