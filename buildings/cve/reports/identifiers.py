"""The identifiers of a list, as callers write them. Pure."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from buildings.cve.numbers import canonical
from buildings.cve.reports.schemes import LONGEST_SHOWN, OTHER
from campus import Problem

MOST_IDS = 1_000
SHOWN_MALFORMED = 20
SHOWN_OTHERS = 100


@dataclass(frozen=True)
class Listed:
    """The distinct identifiers of a list, in its order: CVEs in upper case, those of other schemes, and texts that are none."""

    ids: Sequence[str] = ()
    others: Sequence[str] = ()
    malformed: Sequence[str] = ()


def listed_ids(cve_ids: Sequence[str] | str | None) -> Listed:
    """The identifiers of a list, or of a text that separates them by commas, semicolons or white space.

    Raises Problem 422 when there are more than 1,000, or one is spelled with other characters than ASCII: its neighbors would be
    answered, and it would be missed.
    """
    texts = _parts(cve_ids)
    if len(texts) > MOST_IDS:
        raise Problem(422, "too_many_ids", f"there are more than {MOST_IDS:,} identifiers in cve_ids; split them into several calls")
    ids: dict[str, None] = {}
    others: dict[str, None] = {}
    malformed: dict[str, None] = {}
    for place, text in enumerate(texts, start=1):
        _check(text, place)
        if (cve_id := canonical(text)) is not None:
            ids[cve_id] = None
        else:
            (others if OTHER.fullmatch(text) else malformed)[text[:LONGEST_SHOWN]] = None
    return Listed(tuple(ids), tuple(others), tuple(malformed))


def no_ids(listed: Listed) -> Problem:
    """422: nothing to look up."""
    odd = [f"{len(listed.malformed)} that only look like one"] if listed.malformed else []
    if listed.others:
        odd.append(f"{len(listed.others)} of other schemes, such as {listed.others[0]}, for which no CVE is known")
    detail = f"there is no CVE identifier in cve_ids, and no report{', but ' if odd else ''}{'; '.join(odd)}"
    return Problem(422, "no_cve_ids", f"{detail}; write them as CVE-<year>-<number>, such as CVE-2021-44228")


def _parts(cve_ids: Sequence[str] | str | None) -> list[str]:
    if isinstance(cve_ids, str):
        return [part for part in re.split(r"[,;\s]+", cve_ids) if part]
    return [text.strip() for text in cve_ids or () if text.strip()]


def _check(text: str, place: int) -> None:
    if not text.isascii():
        strange = next(character for character in text if not character.isascii())
        raise Problem(
            422,
            "invalid_cve_ids",
            f"item {place} of cve_ids contains {unicodedata.name(strange, 'a character')} (U+{ord(strange):04X});"
            " write identifiers as CVE-<year>-<number> in ASCII letters, digits and hyphens",
        )
