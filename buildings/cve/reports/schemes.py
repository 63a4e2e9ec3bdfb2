"""Identifiers of vulnerabilities in texts: CVEs, and those of other schemes, such as GHSA, by their form. Pure."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from buildings.cve.numbers import canonical

LONGEST_ID = 80
LONGEST_READ = 10_000
"""Characters of a finding's text in which identifiers are looked for."""
MOST_IDS_EACH = 200
"""Identifiers of one finding: a bulletin of a distribution may name a hundred."""

CVE = re.compile(r"(?<![^\W_])CVE-[0-9]{4}-[0-9]{4,12}(?![^\W_])", re.IGNORECASE)
OTHER = re.compile(
    r"(?<![^\W_])(?:GHSA(?:-[0-9a-z]{4}){3}|CGA(?:-[0-9a-z]{4}){3}"
    r"|(?:PYSEC|RUSTSEC|OSV|GO|MAL|GSD|GMS|EUVD|ELSA|RLSA|ALSA|BDSA|WS|PRISMA|MGASA)-[0-9]{4}-[0-9]+"
    r"|ALAS[0-9A-Z.]{0,40}(?:-[0-9.]{1,20})?-[0-9]{4}-[0-9]+|RH[SBE]A-[0-9]{4}:[0-9]+|(?:DSA|DLA|USN|LSN)-[0-9]+(?:-[0-9]+)?"
    r"|(?:open)?SUSE-[SRO]U-[0-9]{4}:[0-9]+(?:-[0-9]+)?|(?:GLSA|ASA)-[0-9]{6}-[0-9]+|NSWG-[A-Z]+-[0-9]+|XRAY-[0-9]+"
    r"|SNYK-[A-Z0-9]+-[A-Z0-9]+-[0-9]+|npm:[@0-9a-z._/-]+:[0-9]{8}(?:-[0-9]+)?|TEMP-[0-9]{7}-[0-9A-F]{6})(?![^\W_])",
    re.IGNORECASE,
)
LONGEST_SHOWN = 40

DASHES = "\\-_\u2010-\u2015\u2212\ufe58\ufe63\uff0d"
LOOKALIKE = re.compile(
    rf"(?<![^\W_])[C\uff23\u0421][V\uff36][E\uff25\u0415][{DASHES}]\d[^\W_]{{0,19}}(?:[{DASHES}][^\W_]{{1,20}})?", re.IGNORECASE
)
"""What looks like an identifier to a person: with other dashes, digits or letters, or with a part missing."""
_WEAKNESS = re.compile(r"CWE-[0-9]+", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\s,;|]|://")


def cves_in(text: str) -> Iterator[str]:
    """The CVEs in a text, in upper case."""
    return (cve_id for match in CVE.finditer(text) if (cve_id := canonical(match[0])) is not None)


def ids_in(text: str) -> Iterator[str]:
    """The identifiers of all schemes in a text, CVEs first."""
    yield from cves_in(text)
    yield from (match[0] for match in OTHER.finditer(text))


@lru_cache(maxsize=256)
def ids_within(text: str) -> tuple[str, ...]:
    """The same of a text that many findings share, such as that of their rule."""
    return tuple(ids_in(text))


def ids_from_the_start(text: str) -> list[str]:
    """The identifiers of a text that begins with one."""
    ids = list(ids_in(text))
    return ids if ids and text.upper().startswith(tuple(each.upper() for each in ids)) else []


def own_ids(texts: Iterable[str]) -> dict[str, None]:
    """The identifiers in members that hold nothing else: what is of no known scheme is one as it stands, a kind of weakness is none."""
    ids: dict[str, None] = {}
    for text in texts:
        known = ids_within(text[:LONGEST_READ])
        shown = "".join(filter(str.isprintable, text[:LONGEST_ID]))
        if (
            shown
            and not _WEAKNESS.match(text)
            and (not known or (text.upper() not in {each.upper() for each in known} and not _SEPARATORS.search(text)))
        ):
            ids[shown] = None
        ids |= dict.fromkeys(known)
        if len(ids) > MOST_IDS_EACH:
            break
    return ids
