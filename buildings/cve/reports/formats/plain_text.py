"""Text of no known form: each identifier of a vulnerability in it is a finding, at the line where it first stands."""

from collections.abc import Iterator

from buildings.cve.numbers import canonical
from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.schemes import LONGEST_SHOWN, LOOKALIKE, ids_in


def _read(text: str) -> Iterator[Finding | Unreadable]:
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        for each in ids_in(line):
            if each.upper() not in seen:
                seen.add(each.upper())
                yield Finding(ids=(each,), place=f"line {number}")
        for match in LOOKALIKE.finditer(line):
            if canonical(match[0]) is None and match[0] not in seen:
                seen.add(match[0])
                yield Unreadable(f"line {number}", f"{match[0][:LONGEST_SHOWN]} looks like a CVE identifier and is none")


FORMS = (
    Form(
        name="text",
        syntax="text",
        recognises=lambda value: True,
        read=_read,
        generic=True,
        note="It was read as plain text: each identifier in it counts once, as open; packages and states are not known.",
    ),
)
