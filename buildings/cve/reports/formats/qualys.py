"""Qualys: reports of scans, assets and web applications in XML, answers of its API, and the CSV of all of them.

Each detection of a QID on a host is a finding, as Qualys lists them; information gathered has a QID too and mostly no CVE. Reports of
assets and web applications tell of a QID in a glossary.
"""

from collections.abc import Iterator
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import Items, State, has, words
from buildings.cve.reports.paths import Node, first_text, nodes

STATUS = words(open="active new re_opened reopened confirmed potential", fixed="fixed")
IGNORED = words(open="0 no", suppressed="1 yes true")
OF_WEB = ("VULNERABILITY_LIST.VULNERABILITY", "SENSITIVE_CONTENT_LIST.SENSITIVE_CONTENT", "INFORMATION_GATHERED_LIST.INFORMATION_GATHERED")
GLOSSARY = ("GLOSSARY.VULN_DETAILS_LIST.VULN_DETAILS", "GLOSSARY.QID_LIST.QID")


SCANNED = Items(
    at=tuple(f"SCAN.IP.{kind}" for kind in ("VULNS.CAT.VULN", "PRACTICES.CAT.PRACTICE", "INFOS.CAT.INFO", "SERVICES.CAT.SERVICE")),
    ids=("@number", "@cveid", "CVE_ID_LIST.CVE_ID.ID"),
    scheme="QID",
    package="TITLE",
    fixed="SOLUTION",
    place="^^^@value : ^@port : ^@protocol",
    severity="@severity",
)


def _detected(*at: str, host: str = "^^") -> Items:
    return Items(
        at=at,
        ids=("QID", "glossary.CVE_ID_LIST.CVE_ID.ID", "CVE_ID_LIST.CVE_ID.ID"),
        scheme="QID",
        states=(
            *(State(name, STATUS) for name in ("VULN_STATUS", "STATUS")),
            *(State(name, IGNORED) for name in ("IS_IGNORED", "IS_DISABLED", "IGNORED")),
        ),
        package=("glossary.TITLE", "TITLE"),
        fixed=("glossary.SOLUTION", "SOLUTION"),
        place=(f"{host}IP : PORT : PROTOCOL", f"{host}DNS : PORT : PROTOCOL", "URL"),
        severity=("glossary.SEVERITY", "SEVERITY"),
    )


REPORTS = {
    "ASSET_DATA_REPORT": _detected("HOST_LIST.HOST.VULN_INFO_LIST.VULN_INFO"),
    "WAS_SCAN_REPORT": _detected(*(f"RESULTS.{each}" for each in OF_WEB), host=""),
    "WAS_WEBAPP_REPORT": _detected(*(f"RESULTS.WEB_APPLICATION.{each}" for each in OF_WEB), host=""),
    "HOST_LIST_VM_DETECTION_OUTPUT": _detected("RESPONSE.HOST_LIST.HOST.DETECTION_LIST.DETECTION"),
}
CSV = Items(
    at=".",
    ids=("qid", "cve", "cveid", "cves"),
    scheme="QID",
    states=(
        *(State(name, STATUS) for name in ("vulnstatus", "status")),
        *(State(name, IGNORED) for name in ("ignored", "disabled")),
        State("falsepositivestatus", words(open="_ requested rejected", suppressed="approved")),
    ),
    package=("title", "vulntitle"),
    fixed="solution",
    place=("ip : port : protocol", "assetipv4 : port : protocol", "dns", "assetname"),
)


def _read(root: Any) -> Iterator[Finding | Unreadable]:
    name = next(name for name in REPORTS if name in root)
    report = root[name]
    glossary = {first_text(node, ("QID",)): node.value for path in GLOSSARY for node in nodes(Node(report), path)}
    kind = REPORTS[name]
    for at in kind.at:
        for place, node in enumerate(nodes(Node(report), at), start=1):
            about = glossary.get(first_text(node, ("QID",)), {})
            yield kind.finding(Node({**node.value, "glossary": about}, node.name, node.within), f"{at} {place}")


FORMS = (
    Form(name="Qualys scan", syntax="xml", recognises=has("SCAN.IP"), read=SCANNED.read),
    Form(name="Qualys", syntax="xml", recognises=lambda root: not REPORTS.keys().isdisjoint(root), read=_read),
    Form(name="Qualys CSV", syntax="csv", recognises=lambda rows: bool(rows) and "qid" in rows[0], read=CSV.read),
)
