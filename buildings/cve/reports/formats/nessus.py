"""Nessus and Tenable: .nessus files, and the CSV of Nessus, Tenable.sc and Tenable Vulnerability Management.

What a plugin reports of a host and port is one finding, whatever number of CVEs it is about. Plugins that only inform are findings
too, as Nessus counts them: under their own number. `package` is the CPE, else the name of the plugin; `fixed` the solution, unless
the output of the plugin has the versions.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import Items, State, has
from buildings.cve.reports.paths import Node, nodes, texts

INSTALLED = re.compile(r"(?:Installed version|Remote package installed|Version)\s*:\s*(\S[^\n]{0,80})", re.IGNORECASE)
FIXED = re.compile(r"(?:Fixed version|Should be)\s*:\s*(\S[^\n]{0,80})", re.IGNORECASE)
CVES = ("cve", "definitioncve")
OUTPUTS = ("plugin_output", "pluginoutput", "plugintext", "output")

NESSUS = Items(
    at="NessusClientData_v2.Report.ReportHost.ReportItem",
    ids=("@pluginID", "cve"),
    scheme="NESSUS",
    package=("cpe", "@pluginName"),
    fixed="solution",
    place="^@name + @port",
    severity=("risk_factor", "@severity"),
)
STATES = State(
    "vulnerabilitystate",
    dict.fromkeys(("active", "new", "open", "resurfaced", "reopened"), "open") | {"fixed": "fixed"},
)
RULES = State("modification", {"none": "open", "recasted": "open", "accepted": "suppressed"})
ROWS = Items(
    at=".",
    ids=("plugin", "pluginid", "definitionid", *CVES),
    scheme="NESSUS",
    states=(STATES, State("state", STATES.words), RULES, State("riskmodified", RULES.words)),
    package=("cpe", "definitioncpe", "pluginname", "name", "definitionname"),
    fixed=("solution", "stepstoremediate", "definitionsolution"),
    place="host + port",
    severity=("risk", "riskfactor", "severity"),
)
HOSTS = ("host", "ipaddress", "dnsname", "assetname", "assetdisplayipv4address", "assetdisplayfqdn", "fqdn")
SAME = ("plugin", "pluginid", "definitionid", "host", "assetid", "protocol", "port", "repository")


def _read_xml(root: Any) -> Iterator[Finding | Unreadable]:
    yield from _findings(NESSUS, nodes(Node(root), NESSUS.at))


def _read_rows(rows: list[dict[str, str]]) -> Iterator[Finding | Unreadable]:
    yield from _findings(ROWS, map(Node, _joined(rows)))


def _joined(rows: Iterable[dict[str, str]]) -> Iterable[dict[str, str]]:
    """One row for each result: Nessus writes a row for each of its CVEs."""
    joined: dict[tuple[object, ...], dict[str, str]] = {}
    for row in rows:
        row["host"] = next(filter(None, map(row.get, HOSTS)), "")
        first = joined.setdefault((*map(row.get, SAME), next(filter(None, map(row.get, OUTPUTS)), "")), row)
        if first is not row:
            for name in CVES:
                if row.get(name, "") not in first.get(name, ""):
                    first[name] = f"{first[name]},{row[name]}"
    return joined.values()


def _findings(items: Items, results: Iterable[Node]) -> Iterator[Finding | Unreadable]:
    for place, node in enumerate(results, start=1):
        finding = items.finding(node, place)
        output = "\n".join(text for path in OUTPUTS for text in texts(node, path))
        if isinstance(finding, Finding):
            installed, fixed = INSTALLED.search(output), FIXED.search(output)
            finding = replace(
                finding,
                package=finding.package.partition("\n")[0],
                version=installed[1].strip() if installed else "",
                fixed=fixed[1].strip() if fixed else finding.fixed.removeprefix("n/a"),
            )
        yield finding


def _is_table(rows: list[dict[str, str]]) -> bool:
    head = set(rows[0]) if rows else set()
    return bool(head & {"pluginid", "plugin"} and head & {"pluginoutput", "plugintext", "synopsis"}) or "definitionid" in head


FORMS = (
    Form(name="Nessus", syntax="xml", recognises=has("NessusClientData_v2"), read=_read_xml),
    Form(name="Nessus CSV", syntax="csv", recognises=_is_table, read=_read_rows),
)
