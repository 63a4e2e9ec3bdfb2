"""Nexpose and InsightVM of Rapid7: the XML export. Each test of a node or service that found a vulnerability is a finding."""

from collections.abc import Iterator
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import Items, State, has, words
from buildings.cve.reports.paths import Node, first_text, nodes

STATUS = State(
    "@status",
    words(
        open="vulnerable_exploited vulnerable_version vulnerable_potential",
        suppressed="exception_vulnerable_exploited exception_vulnerable_version exception_vulnerable_potential",
    ),
)
PASSED = ("not-vulnerable", "not-vulnerable-version", "skipped-version", "skipped", "error", "overridden-vulnerable-version")
TESTS = Items(
    at=".",
    ids=("@id", "about.references.reference.[@source=CVE]"),
    states=(STATUS,),
    package="about.@title",
    place="host : port",
    severity="about.@severity",
    counts=lambda node: first_text(node, ("@status",)) not in PASSED,
)
AT = (("tests.test", ""), ("endpoints.endpoint.services.service.tests.test", "^^^^@port"))


def _read(root: Any) -> Iterator[Finding | Unreadable]:
    report = Node(root["NexposeReport"])
    definitions = {first_text(node, ("@id",)).lower(): node.value for node in nodes(report, "VulnerabilityDefinitions.vulnerability")}
    for node in nodes(report, "nodes.node"):
        for at, port in AT:
            for test in nodes(node, at):
                about = definitions.get(first_text(test, ("@id",)).lower(), {})
                known = {"about": about, "host": first_text(node, ("@address",)), "port": first_text(test, (port,)) if port else ""}
                yield from TESTS.read({**test.value, **known})


FORMS = (Form(name="Nexpose", syntax="xml", recognises=has("NexposeReport"), read=_read),)
