"""OpenVEX: statements on products, of all versions of the specification. Other documents' statements are said by their authors."""

from collections.abc import Iterator, Mapping
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import folded, words
from buildings.cve.reports.paths import Node, first_text, texts
from buildings.cve.reports.schemes import own_ids
from buildings.cve.reports.vex import Statement, latest, package_of

STATUSES = words(open="affected under_investigation", fixed="fixed", not_affected="not_affected")
PURL = ("identifiers.purl", "@id", ".")


def _read(value: Any) -> Iterator[Finding | Unreadable]:
    statements: list[Statement] = []
    for document in value if isinstance(value, list) else [value]:
        for place, statement in enumerate(_list(document.get("statements")), start=1):
            if isinstance(read := _ids(statement), tuple):
                statements += _statements(document, statement, read)
            else:
                yield Unreadable(f"statement {place}", "it names no vulnerability")
    yield from latest(statements)


def _statements(document: Mapping[str, Any], statement: Mapping[str, Any], ids: tuple[str, ...]) -> Iterator[Statement]:
    word = first_text(Node(statement), ("status",))
    said = STATUSES.get(folded(word), "unknown")
    author = first_text(Node(document), ("author",)) or "the author of the document"
    at = first_text(Node(statement), ("timestamp", "last_updated")) or first_text(Node(document), ("timestamp",))
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


def _ids(statement: Any) -> tuple[str, ...] | None:
    if not isinstance(statement, Mapping):
        return None
    node = Node(statement)
    own = texts(node, "vulnerability.name") or texts(node, "vulnerability") or texts(node, "vulnerability.@id")
    return tuple(own_ids([*own, *texts(node, "vulnerability.aliases")])) or None


def _products(statement: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each product of a statement with each of its components; a statement on none is on what the document is attached to."""
    for product in _list(statement.get("products")) or [{}]:
        own = product.get("subcomponents") if isinstance(product, Mapping) else None
        for component in _list(own or statement.get("subcomponents")) or [{}]:
            yield first_text(Node(product), PURL), first_text(Node(component), PURL)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _recognises(value: Any) -> bool:
    documents = value if isinstance(value, list) else [value]
    return bool(documents) and all(isinstance(each, Mapping) and "openvex" in str(each.get("@context")) for each in documents)


FORMS = (Form(name="OpenVEX", recognises=_recognises, read=_read),)
