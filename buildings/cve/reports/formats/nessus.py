"""Nessus and Tenable: .nessus files, and the CSV of Nessus, Tenable.sc and Tenable Vulnerability Management.

What a plugin reports of a host and port is one finding, whatever number of CVEs it is about. Plugins that only inform are findings
too, as Nessus counts them: under their own number. `package` is the CPE, else the name of the plugin; `fixed` the solution, unless
the output of the plugin has the versions.
"""

from collections.abc import Iterable, Iterator

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import Items, State, has, words
from buildings.cve.reports.paths import match

CVES = ("cve", "definitioncve")
OUTPUTS = ("plugin_output", "pluginoutput", "plugintext", "output")
INSTALLED = tuple(match(output, r"(?:Installed version|Remote package installed)\s*:\s*(\S.{0,80})") for output in OUTPUTS)
FIXED = tuple(match(output, r"(?:Fixed version|Should be)\s*:\s*(\S.{0,80})") for output in OUTPUTS)
FIRST_LINE = r"\A(\S+)"
SOLUTION = r"\A(?!n/a)((?:.|\n)+)"

NESSUS = Items(
    at="NessusClientData_v2.Report.ReportHost.ReportItem",
    ids=("@pluginID", "cve"),
    scheme="NESSUS",
    package=(match("cpe", FIRST_LINE), "@pluginName"),
    version=INSTALLED,
    fixed=(*FIXED, match("solution", SOLUTION)),
    place="^@name : @port : @protocol",
    severity=("risk_factor", "@severity"),
)
STATES = State("vulnerabilitystate", words(open="active new open resurfaced reopened", fixed="fixed"))
RULES = State("modification", words(open="none recasted", suppressed="accepted"))
ROWS = Items(
    at=".",
    ids=("plugin", "pluginid", "definitionid", *CVES),
    scheme="NESSUS",
    states=(STATES, State("state", STATES.words), RULES, State("riskmodified", RULES.words)),
    package=(match("cpe", FIRST_LINE), match("definitioncpe", FIRST_LINE), "pluginname", "name", "definitionname"),
    version=INSTALLED,
    fixed=(*FIXED, *(match(name, SOLUTION) for name in ("solution", "stepstoremediate", "definitionsolution"))),
    place="host : port : protocol",
    severity=("risk", "riskfactor", "severity"),
)
HOSTS = ("host", "ipaddress", "dnsname", "assetname", "assetdisplayipv4address", "assetdisplayfqdn", "fqdn")
SAME = ("plugin", "pluginid", "definitionid", "host", "assetid", "protocol", "port", "repository")


def _read_rows(rows: list[dict[str, str]]) -> Iterator[Finding | Unreadable]:
    yield from ROWS.read(list(_joined(rows)))


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


def _is_table(rows: list[dict[str, str]]) -> bool:
    head = set(rows[0]) if rows else set()
    return bool(head & {"pluginid", "plugin"} and head & {"pluginoutput", "plugintext", "synopsis"}) or "definitionid" in head


FORMS = (
    Form(name="Nessus", syntax="xml", recognises=has("NessusClientData_v2"), read=NESSUS.read),
    Form(name="Nessus CSV", syntax="csv", recognises=_is_table, read=_read_rows),
)
