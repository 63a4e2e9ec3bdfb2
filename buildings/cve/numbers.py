"""CVE identifiers: how they are written, and as numbers that sort by year and sequence. Pure, and imports nothing."""

import re

PATTERN = r"^[Cc][Vv][Ee]-[0-9]{4}-([0-9]{4}|[1-9][0-9]{4,11})$"
SEQUENCES = 10**12
"""Numbers per year: twelve digits, where the longest ever assigned has seven; year and sequence together fit 64 bits."""

_SPELLING = re.compile(PATTERN)


def canonical(text: str) -> str | None:
    """The identifier in upper case, as it is published; None for anything that is not one (surrounding blanks included)."""
    return text.upper() if _SPELLING.fullmatch(text) else None


def number_of(cve_id: str) -> int:
    return int(cve_id[4:8]) * SEQUENCES + int(cve_id[9:])


def spelled(number: int) -> str:
    year, sequence = divmod(number, SEQUENCES)
    return f"CVE-{year:04d}-{sequence:04d}"
