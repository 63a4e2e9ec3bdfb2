"""Text of no known form: each CVE in it is a finding."""

from collections.abc import Iterator

from buildings.cve.reports.findings import Finding, Form
from buildings.cve.reports.schemes import ids_in


def _read(value: str) -> Iterator[Finding]:
    yield from (Finding(ids=(each,)) for each in dict.fromkeys(ids_in(value)))


FORMS = (
    Form(
        name="text",
        syntax="text",
        recognises=lambda value: True,
        read=_read,
        generic=True,
        note="It was read as plain text: each identifier in it counts once, as open.",
    ),
)
