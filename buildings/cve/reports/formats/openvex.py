"""OpenVEX: statements on products, of all versions of the specification. Other documents' statements are said by their authors."""

from collections.abc import Iterator, Mapping
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import folded, words
from buildings.cve.reports.paths import Node, first_text, nodes, texts
from buildings.cve.reports.schemes import own_ids
from buildings.cve.reports.vex import Statement, latest, package_of

STATUSES = words(open="affected under_investigation", fixed="fixed", not_affected="not_affected")
PURL = ("identifiers.purl", "@id", ".")


def _read(value: Any) -> Iterator[Finding | Unreadable]:
    statements: list[Statement] = []
    for document in nodes(Node(value), "."):
        for place, statement in enumerate(nodes(document, "statements"), start=1):
            if ids := _ids(statement):
                statements += _statements(document, statement, ids)
            else:
                yield Unreadable(f"statement {place}", "it names no vulnerability")
    yield from latest(statements)


def _statements(document: Node, statement: Node, ids: tuple[str, ...]) -> Iterator[Statement]:
    word = first_text(statement, ("status",))
    said = STATUSES.get(folded(word), "unknown")
    author = first_text(document, ("author",)) or "the author of the document"
    at = first_text(statement, ("timestamp", "last_updated")) or first_text(document, ("timestamp",))
    for product, component in _products(statement):
        package, version = package_of(component or product)
        finding = Finding(
            ids=ids,
            said=said,
            state=word,
            by="" if said in ("open", "unknown") else author,
            package=package,
            version=version,
            place=product if component else "",
        )
        yield Statement(finding, f"{product} {component}", author, at)


def _ids(statement: Node) -> tuple[str, ...]:
    own = texts(statement, "vulnerability.name") or texts(statement, "vulnerability") or texts(statement, "vulnerability.@id")
    return tuple(own_ids([*own, *texts(statement, "vulnerability.aliases")]))


def _products(statement: Node) -> Iterator[tuple[str, str]]:
    """Each product of a statement with each of its components; a statement on none is on what the document is attached to."""
    shared = list(nodes(statement, "subcomponents")) or [Node({})]
    for product in list(nodes(statement, "products")) or [Node({})]:
        for component in list(nodes(product, "subcomponents")) or shared:
            yield first_text(product, PURL), first_text(component, PURL)


def _recognises(value: Any) -> bool:
    documents = value if isinstance(value, list) else [value]
    return bool(documents) and all(isinstance(each, Mapping) and "openvex" in str(each.get("@context")) for each in documents)


FORMS = (Form(name="OpenVEX", recognises=_recognises, read=_read),)
