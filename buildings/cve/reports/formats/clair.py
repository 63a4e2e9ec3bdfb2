"""Clair: the JSON of version 4, and of clair-scanner and Klar."""

from collections.abc import Iterator
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import Items, either, has
from buildings.cve.reports.paths import Node, first_text, nodes, texts
from buildings.cve.reports.schemes import own_ids


def _of_version_4(value: Any) -> Iterator[Finding | Unreadable]:
    """A vulnerability in a package, which is what Clair lists: its members are kept apart and refer to each other."""
    root = Node(value)
    packages = {each.name: each for each in nodes(root, "packages.{}")}
    vulnerabilities = {each.name: each for each in nodes(root, "vulnerabilities.{}")}
    for listed in nodes(root, "package_vulnerabilities.{}"):
        package, vulnerability = packages.get(listed.name, Node({})), vulnerabilities.get(str(listed.value), Node({}))
        ids = own_ids(texts(vulnerability, "name") or texts(listed, "."))
        if not ids:
            yield Unreadable(f"package_vulnerabilities {listed.name}", "names no vulnerability")
            continue
        yield Finding(
            ids=tuple(ids),
            package=first_text(package, ("name",)),
            version=first_text(package, ("version",)),
            fixed=first_text(vulnerability, ("fixed_in_version",)),
            place=first_text(root, ("manifest_hash",)),
            severity=first_text(vulnerability, ("normalized_severity", "severity")),
        )


FORMS = (
    Form(name="Clair", recognises=has("manifest_hash", "package_vulnerabilities"), read=_of_version_4),
    Form(
        name="clair-scanner",
        recognises=either(has("vulnerabilities.featurename"), has("unapproved", "vulnerabilities")),
        read=Items(
            at="vulnerabilities", ids="vulnerability", package="featurename", version="featureversion", fixed="fixedby", place="^image"
        ).read,
    ),
    Form(
        name="Klar",
        recognises=has("LayerCount", "Vulnerabilities"),
        read=Items(
            at="Vulnerabilities.{}",
            ids="Name",
            package="FeatureName",
            version="FeatureVersion",
            fixed="FixedBy",
            place="NamespaceName",
            severity="Severity",
        ).read,
    ),
)
