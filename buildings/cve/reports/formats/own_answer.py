"""An earlier answer of this service to a report: its findings are read again, and judged by the list of today."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import Items, State, has, words
from buildings.cve.reports.paths import Node, first_text, nodes

BUCKET = words(open="today this_week later not_ranked not_looked_up", suppressed="suppressed", not_affected="not_affected", fixed="fixed")
ROW = Items(
    at="findings",
    ids=("id", "cve_id", "other_ids"),
    states=(State("bucket", BUCKET),),
    package="package",
    version="installed_version",
    fixed="fixed_version",
    place="place",
    severity="tool_severity",
)


def _read(value: Any) -> Iterator[Finding | Unreadable]:
    for place, node in enumerate(nodes(Node(value), ROW.at), start=1):
        finding = ROW.finding(node, place)
        if isinstance(finding, Unreadable):
            yield Unreadable(first_text(node, ("place",)) or finding.where, first_text(node, ("reason",)) or finding.why)
        else:
            yield replace(finding, state=first_text(node, ("state",)), by=first_text(node, ("said_by",)))


FORMS = (Form(name="answer of this service", syntax="json", recognises=has("accounting.form", "accounting.counts"), read=_read),)
