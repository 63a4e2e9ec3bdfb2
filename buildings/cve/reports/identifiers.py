"""Finds CVE identifiers in lists and in the reports of scanners, whatever their format: by their form. Pure.

In a report in JSON only its findings count; see json_reports.py.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from buildings.cve.arguments import canonical
from buildings.cve.reports.json_reports import WELL_FORMED, findings_in, others_in
from campus import Problem

MOST_IDS = 1_000
LONGEST_REPORT = 1_000_000
LARGEST_REPORT = 1 << 20
"""The bytes of a request with a report; a JSON text needs a backslash before each quotation mark."""
SHOWN_MALFORMED = 20
SHOWN_OTHERS = 100
LONGEST_SHOWN = 40

DASHES = "\\-_\u2010-\u2015\u2212\ufe58\ufe63\uff0d"
LOOKALIKE = re.compile(
    rf"(?<![^\W_])[C\uff23\u0421][V\uff36][E\uff25\u0415][{DASHES}]\d[^\W_]{{0,19}}(?:[{DASHES}][^\W_]{{1,20}})?", re.IGNORECASE
)
"""What looks like an identifier to a person: with other dashes, digits or letters, or with a part missing."""


@dataclass(frozen=True)
class FoundIds:
    """The distinct identifiers of a request in upper case, in the order of their first mention, and what only looks like one.

    `not_looked_up` are those of other schemes that no CVE of the same finding stands for; `left_out` the CVEs that a report
    mentions in places only that are no findings.
    """

    ids: Sequence[str]
    malformed: Sequence[str]
    not_looked_up: Sequence[str] = ()
    left_out: Sequence[str] = ()


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
    findings = findings_in(report) if report else None
    text = "\n".join(findings.texts) if findings else report or ""
    for cve_id in _well_formed(text):
        ids[cve_id] = None
        if len(ids) > MOST_IDS:
            raise too_many_ids()
    if len(ids) > MOST_IDS:
        raise too_many_ids()
    malformed |= dict.fromkeys(_lookalikes(text))
    others = dict.fromkeys((*(one for one in listed if others_in(one)), *(findings.others if findings else others_in(text))))
    found = FoundIds(
        ids=tuple(ids),
        malformed=tuple(one for one in malformed if one not in others),
        not_looked_up=tuple(one for one in others if findings is None or one not in findings.named),
        left_out=tuple(dict.fromkeys(cve_id for cve_id in _well_formed(report or "") if cve_id not in ids)) if findings else (),
    )
    if not ids:
        raise no_ids(found)
    return found


def _well_formed(text: str) -> Iterable[str]:
    return (cve_id for match in WELL_FORMED.finditer(text) if (cve_id := canonical(match[0])) is not None)


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


def no_ids(found: FoundIds) -> Problem:
    """422: nothing to look up."""
    odd = [f"{len(found.malformed)} that only look like one"] if found.malformed else []
    if found.not_looked_up:
        odd.append(f"{len(found.not_looked_up)} of other schemes, such as {found.not_looked_up[0]}: send the CVEs that they stand for")
    if found.left_out:
        odd.append(f"{len(found.left_out)} that the report marks as no finding, such as {found.left_out[0]}: send them in cve_ids")
    detail = f"there is no CVE identifier in cve_ids or report{', but ' if odd else ''}{'; '.join(odd)}"
    return Problem(422, "no_cve_ids", f"{detail}; write them as CVE-<year>-<number>, such as CVE-2021-44228")
