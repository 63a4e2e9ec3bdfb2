"""OpenVAS and Greenbone: reports in XML, also as the management protocol wraps them, and in CSV.

Each result on a host and port is a finding, under the OID of its test; results of level Log only inform, and are findings too.
"""

from collections.abc import Iterator
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import Items, State, either, has, words
from buildings.cve.reports.paths import Node, match, nodes

FALSE = words(suppressed="false_positive")
INSTALLED, FIXED = r"Installed version:\s*(\S.*)", r"Fixed version:\s*(\S.*)"
ROOTS = ("get_reports_response.report.report", "get_reports_response.report", "report.report", "report")
RESULT = Items(
    at="results.result",
    ids=("nvt.@oid", "nvt.refs.ref.[@type=cve].@id"),
    named_in=("nvt.cve", "name"),
    states=(
        State("[threat=False Positive].threat", FALSE),
        State("overrides.override.[new_threat=False Positive].new_threat", FALSE, by="overrides.override.owner.name"),
    ),
    package=("name", "nvt.name"),
    version=match("description", INSTALLED),
    fixed=(match("description", FIXED), "nvt.solution"),
    place="host : port",
    severity=("threat", "severity"),
)
CSV = Items(
    at=".",
    ids=("nvtoid", "cves"),
    named_in="nvtname",
    states=(State("[severity=False Positive].severity", FALSE),),
    package="nvtname",
    version=match("specificresult", INSTALLED),
    fixed=(match("specificresult", FIXED), "solution"),
    place=("ip : port : portprotocol", "hostname : port : portprotocol"),
)


def _read(root: Any) -> Iterator[Finding | Unreadable]:
    report = next(report for path in ROOTS for report in nodes(Node(root), path) if "results" in report.value)
    yield from RESULT.read(report.value)


FORMS = (
    Form(name="OpenVAS", syntax="xml", recognises=either(*(has(f"{path}.results") for path in ROOTS)), read=_read),
    Form(name="OpenVAS CSV", syntax="csv", recognises=lambda rows: bool(rows) and "nvtoid" in rows[0], read=CSV.read),
)
