"""XML of no known form: an element is a finding if identifiers begin one of its attributes or of its children that are texts.

Its attributes and texts are read like the columns of a CSV, with those of the element around it (not of the root) where it has none.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.formats.any_csv import ROW
from buildings.cve.reports.paths import Node
from buildings.cve.reports.rows import column_of
from buildings.cve.reports.schemes import cves_in, ids_from_the_start


def _read(root: Mapping[str, Any]) -> Iterator[Finding | Unreadable]:
    found: set[str] = set()
    mentioned: dict[str, None] = {}
    heap: list[tuple[Any, dict[str, str] | None]] = [(element, None) for element in root.values()]
    while heap:
        element, around = heap.pop()
        if not isinstance(element, Mapping):
            mentioned |= dict.fromkeys(cves_in(element))
            continue
        flat = {column_of(name): text for name, text in _texts(element)}
        ids = [each for _, text in _texts(element) for each in ids_from_the_start(text[:1_000])]
        if ids:
            found.update(ids)
            yield ROW.finding(Node({**(around or {}), **flat, "ids": ids}), "item")
        mentioned |= dict.fromkeys(cve_id for _, text in _texts(element) for cve_id in cves_in(text))
        heap += [
            (each, flat if around is not None else {})
            for members in reversed(list(element.values()))
            if isinstance(members, list)
            for each in reversed(members)
        ]
    yield from (Finding(ids=(each,), said="unknown", state="only mentioned in a text") for each in mentioned if each not in found)


def _texts(element: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The attributes of an element, its own text, and its children that are texts."""
    for name, members in element.items():
        yield from ((name, text) for text in (members if isinstance(members, list) else [members]) if isinstance(text, str))


FORMS = (
    Form(
        name="XML",
        syntax="xml",
        recognises=lambda root: True,
        read=_read,
        generic=True,
        note="The form of this XML is not known: findings were recognised by identifiers of vulnerabilities in it.",
    ),
)
