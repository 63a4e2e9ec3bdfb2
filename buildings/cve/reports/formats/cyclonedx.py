"""CycloneDX of all versions, in JSON and XML, with its analysis (VEX): one finding for each vulnerability and component it affects.

Before 1.4 vulnerabilities are an extension of XML that names one component each (`ref`), or
stand within it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import either, folded, has, words
from buildings.cve.reports.paths import Node, first_text, nodes, one_line, texts
from buildings.cve.reports.schemes import own_ids
from buildings.cve.reports.vex import package_of

STATES = words(open="exploitable in_triage", fixed="resolved resolved_with_pedigree", not_affected="not_affected false_positive")
SEVERITIES = ("unknown", "none", "info", "low", "medium", "high", "critical")
RATINGS = ("ratings.severity", "ratings.rating.severity")
VERSIONS = ("versions.version", "versions.range", "versions.version.version", "versions.version.range")
AUTHORS = (
    "metadata.supplier.name",
    "metadata.manufacturer.name",
    "metadata.manufacture.name",
    "metadata.authors.name",
    "metadata.authors.author.name",
)


class Component(NamedTuple):
    package: str
    version: str = ""
    ref: str = ""


def _read_json(bom: Any) -> Iterator[Finding | Unreadable]:
    yield from _read(Node(bom), components=("metadata.component", "components", "services"), vulnerabilities="vulnerabilities")


def _read_xml(document: Any) -> Iterator[Finding | Unreadable]:
    components = ("metadata.component", "components.component", "services.service")
    yield from _read(Node(document["bom"]), components=components, vulnerabilities="vulnerabilities.vulnerability")


def _read(bom: Node, *, components: tuple[str, ...], vulnerabilities: str) -> Iterator[Finding | Unreadable]:
    by_ref: dict[str, Component] = {}
    listed: list[tuple[Node, Component | None]] = [(node, None) for node in nodes(bom, vulnerabilities)]
    for node in _components(bom, components):
        component = _component(node)
        by_ref[component.ref] = component
        listed += [(each, component) for each in nodes(node, vulnerabilities)]
    author = first_text(bom, AUTHORS) or "analysis"
    for place, (node, within) in enumerate(listed, start=1):
        if ids := tuple(own_ids([*texts(node, "id"), *texts(node, "references.id"), *texts(node, "references.reference.id")])):
            for affected in list(nodes(node, "affects.target")) or list(nodes(node, "affects")) or [node]:
                yield _finding(ids, node, affected, within or _affected(affected, by_ref), author)
        else:
            yield Unreadable(f"vulnerabilities {place}", "has no id")


def _finding(ids: tuple[str, ...], node: Node, affected: Node, component: Component, author: str) -> Finding:
    state = first_text(node, ("analysis.state",))
    said = STATES.get(folded(state), "unknown") if state else "open"
    if said == "open" and _is_unaffected(affected):
        said, state = "not_affected", "unaffected"
    return Finding(
        ids=ids,
        said=said,
        state=state,
        by="" if said in ("open", "unknown") else author,
        package=component.package,
        version=component.version or first_text(affected, VERSIONS),
        fixed=first_text(node, ("recommendation", "recommendations.recommendation")),
        place=component.ref,
        severity=one_line(max((each for path in RATINGS for each in texts(node, path)), key=_weight, default="")),
    )


def _affected(affected: Node, by_ref: Mapping[str, Component]) -> Component:
    """The component that a reference names; of another document (a BOM link) what the reference says itself."""
    ref = first_text(affected, ("ref", "@ref"))
    own = unquote(ref.rpartition("#")[2]) if ref.startswith("urn:cdx:") else ref
    return by_ref.get(ref) or by_ref.get(own) or Component(*package_of(own), ref if own.startswith("pkg:") else "")


def _weight(severity: str) -> int:
    return SEVERITIES.index(severity.lower()) if severity.lower() in SEVERITIES else 0


def _is_unaffected(affected: Node) -> bool:
    """Whether all versions of the component that a vulnerability names are said to be unaffected."""
    versions = (
        list(nodes(affected, "versions.version")) if first_text(affected, ("versions.version.status",)) else nodes(affected, "versions")
    )
    statuses = [first_text(version, ("status",)) or "affected" for version in versions]
    return bool(statuses) and all(folded(status) == "unaffected" for status in statuses)


def _components(bom: Node, paths: tuple[str, ...]) -> Iterator[Node]:
    """Components and services with those within them, however deep."""
    heap = [each for path in paths for each in nodes(bom, path)]
    while heap:
        node = heap.pop()
        yield node
        heap += [each for path in paths[1:] for each in nodes(node, path)]


def _component(node: Node) -> Component:
    group, name, version = (first_text(node, (path,)) for path in ("group", "name", "version"))
    joint = ":" if first_text(node, ("purl",)).startswith("pkg:maven/") else "/"
    return Component(f"{group}{joint}{name}" if group else name, version, first_text(node, ("bom-ref", "@bom-ref", "purl")))


FORMS = (
    Form(name="CycloneDX", recognises=either(has("bomFormat"), has("specVersion", "components")), read=_read_json),
    Form(name="CycloneDX", syntax="xml", recognises=lambda root: isinstance(root.get("bom"), Mapping), read=_read_xml),
)
