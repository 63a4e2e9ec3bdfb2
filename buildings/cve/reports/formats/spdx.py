"""SPDX: the security references of packages in 2.3 (JSON and tag-value), the vulnerabilities and VEX relationships of 3.0."""

from collections.abc import Iterator, Mapping
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import Items, State, has, words
from buildings.cve.reports.paths import Node, first_text, nodes, texts
from buildings.cve.reports.schemes import own_ids
from buildings.cve.reports.vex import Statement, latest

REFERENCES = Items(
    at="packages.externalRefs",
    ids="referenceLocator",
    named_in="comment",
    states=(State("referenceType", words(open="advisory")),),
    package="^name",
    version="^versionInfo",
    counts=lambda node: (
        first_text(node, ("referenceCategory",)).upper() == "SECURITY"
        and first_text(node, ("referenceType",)).lower() in ("advisory", "fix", "url")
    ),
)
"""A reference of type `fix` or `url` names a vulnerability, and does not say whether the package has it: its state is unknown."""


def _read_packages(value: Any) -> Iterator[Finding | Unreadable]:
    """One finding for each package and vulnerability: several references may name the same."""
    found: dict[tuple[int, str], Finding] = {}
    for place, node in enumerate(nodes(Node(value), "packages.externalRefs"), start=1):
        if REFERENCES.counts(node):
            finding = REFERENCES.finding(node, f"packages.externalRefs {place}")
            if isinstance(finding, Unreadable):
                yield finding
            elif found.get(key := (id(node.within and node.within.value), finding.ids[0].upper()), finding).said != "open":
                found[key] = finding
            else:
                found.setdefault(key, finding)
    yield from found.values()


RELATIONS = words(open="hasassociatedvulnerability affects underinvestigationfor", fixed="fixedin", not_affected="doesnotaffect")
VULNERABILITY = "security_Vulnerability"


def _read_graph(value: Any) -> Iterator[Finding | Unreadable]:
    elements = {first_text(node, ("spdxId", "@id")): node for node in nodes(Node(value), "@graph")}
    vulnerabilities = {spdx_id: node for spdx_id, node in elements.items() if first_text(node, ("type", "@type")) == VULNERABILITY}
    statements = [each for node in elements.values() for each in _statements(node, elements, vulnerabilities)]
    named = {each.finding.ids for each in statements}
    for spdx_id, node in vulnerabilities.items():
        if not (ids := _ids(node)):
            yield Unreadable(spdx_id, "the vulnerability has no name and no external identifier")
        elif ids not in named:
            yield Finding(ids=ids, said="unknown", state="no relationship")
    yield from latest(statements)


def _statements(node: Node, elements: Mapping[str, Node], vulnerabilities: Mapping[str, Node]) -> Iterator[Statement]:
    """What a relationship says: of a vulnerability to packages, or of a package to vulnerabilities."""
    word = first_text(node, ("relationshipType",))
    ends = [*texts(node, "from"), *texts(node, "to")]
    about = [each for each in ends if each in vulnerabilities]
    said = RELATIONS.get(word.lower(), "unknown")
    if not about or word.lower() in ("hasassessmentfor", "publishedby", "foundby", "reportedby", "republishedby", "coordinatedby"):
        return
    at = first_text(node, ("security_modifiedTime", "security_publishedTime"))
    author = first_text(elements.get(first_text(node, ("suppliedBy",)), node), ("name", "suppliedBy")) or "the author of the document"
    for product in [each for each in ends if each not in vulnerabilities] or [""]:
        package = elements.get(product)
        for vulnerability in about:
            if ids := _ids(vulnerabilities[vulnerability]):
                finding = Finding(
                    ids=ids,
                    said=said,
                    state=word,
                    by="" if said in ("open", "unknown") else author,
                    package=first_text(package, ("name",)) if package else product,
                    version=first_text(package, ("software_packageVersion",)) if package else "",
                )
                yield Statement(finding, product, "", at)


def _ids(node: Node) -> tuple[str, ...]:
    return tuple(own_ids([*texts(node, "name"), *texts(node, "externalIdentifier.identifier")]))


def _read_tags(text: str) -> Iterator[Finding | Unreadable]:
    """Tag-value, as the same document in JSON."""
    packages: list[dict[str, Any]] = []
    for line in text.splitlines():
        tag, _, value = (part.strip() for part in line.partition(":"))
        if tag == "PackageName":
            packages.append({"name": value, "externalRefs": []})
        elif packages and tag == "PackageVersion":
            packages[-1]["versionInfo"] = value
        elif packages and tag == "ExternalRef" and len(parts := value.split(None, 2)) == 3:
            packages[-1]["externalRefs"].append(dict(zip(("referenceCategory", "referenceType", "referenceLocator"), parts, strict=True)))
    yield from _read_packages({"packages": packages})


FORMS = (
    Form(name="SPDX", recognises=has("spdxVersion", "SPDXID"), read=_read_packages),
    Form(
        name="SPDX 3",
        recognises=lambda value: isinstance(value, Mapping) and "spdx" in str(value.get("@context")) and "@graph" in value,
        read=_read_graph,
    ),
    Form(name="SPDX", syntax="text", recognises=lambda text: text.lstrip().startswith("SPDXVersion:"), read=_read_tags),
)
