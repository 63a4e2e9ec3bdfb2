"""Real reports: every finding of each file in a folder is accounted for, as many as the tool itself has.

`CAMPUS_REPORTS=folder pytest -s tests/cve/test_real_reports.py` reads a folder of scanners' reports of your own, or a public collection
such as `unittests/scans` of DefectDojo, and prints a table of them: a row for each form. None is part of this repository.
"""

import csv
import io
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from buildings.cve.reports.findings import Finding, Report, ReportRefused
from buildings.cve.reports.reader import read_report, readable

FOLDER = os.environ.get("CAMPUS_REPORTS", "")
LARGEST = 20_000_000
NOT_REPORTS = {".md", ".py", ".pdf", ".html", ".yml", ".yaml", ".docx", ".png"}


@dataclass
class Row:
    """What became of the files of one form."""

    files: int = 0
    findings: int = 0
    unreadable: int = 0
    agreed: int = 0
    """Files of which the tool's own number is known, and is the number read."""
    differ: list[str] = field(default_factory=list)
    claimed_otherwise: int = 0
    """Files that say another number of themselves than they have: pages of a longer list, or such as somebody has shortened."""
    said: Counter[str] = field(default_factory=Counter)


@pytest.mark.skipif(not FOLDER, reason="CAMPUS_REPORTS names no folder of real reports")
def test_every_finding_of_real_reports_is_accounted_for() -> None:
    rows: dict[str, Row] = defaultdict(Row)
    wrong: list[str] = []
    for path in sorted(Path(FOLDER).rglob("*")):
        if not path.is_file() or path.suffix.lower() in NOT_REPORTS or path.stat().st_size > LARGEST:
            continue
        name, data = str(path.relative_to(FOLDER)), path.read_bytes()
        try:
            report = readable(read_report(data))
        except ReportRefused as refused:
            rows[f"refused: {re.sub('[0-9]+', 'n', refused.detail)[:60]}"].files += 1
            continue
        except Exception as error:  # whatever it raises is what this test looks for
            wrong.append(f"{name}: raises {error!r}")
            continue
        wrong += [f"{name}: {fault}" for fault in faults(report)]
        row = rows[report.form]
        row.claimed_otherwise += report.claimed not in (None, len(report.findings) + len(report.unreadable))
        row.files += 1
        row.findings += len(report.findings)
        row.unreadable += len(report.unreadable)
        row.said.update(each.said for each in report.findings)
        number = own_number(data)
        if number is not None:
            read = len(report.findings) + len(report.unreadable)
            if number == read:
                row.agreed += 1
            else:
                row.differ.append(f"{name}: {read} read, {number} by the tool")
    print(table_of(rows))
    differ = [each for row in rows.values() for each in row.differ]
    assert not wrong + differ, "\n" + "\n".join(wrong + differ)


def faults(report: Report) -> Iterator[str]:
    """What no report may come to, whatever its tool."""
    for each in report.findings:
        if not isinstance(each, Finding) or not each.ids or not all(each.ids):
            yield f"a finding without an identifier: {each}"
        texts = (*each.ids, each.state, each.by, each.package, each.version, each.fixed, each.place, each.severity)
        if not all(isinstance(text, str) and "\n" not in text and len(text) <= 1_000 for text in texts):
            yield f"a text of a finding is none, or not short: {each}"[:500]


HEAD = "| form | files | findings | unreadable | tool's own number: the same | claimed otherwise | differs | said |"


def table_of(rows: dict[str, Row]) -> str:
    lines = ["", HEAD, "|---" * HEAD.count(" |") + "|"]
    for name, row in sorted(rows.items()):
        said = ", ".join(f"{word} {count}" for word, count in row.said.most_common())
        lines.append(f"| {name} | {' | '.join(map(str, numbers_of([row])))} | {said} |")
    return "\n".join([*lines, f"| all | {' | '.join(map(str, numbers_of(rows.values())))} | |"])


def numbers_of(rows: Collection[Row]) -> list[int]:
    names = ("files", "findings", "unreadable", "agreed", "claimed_otherwise")
    return [*(sum(getattr(row, name) for row in rows) for name in names), sum(len(row.differ) for row in rows)]


def own_number(data: bytes) -> int | None:
    """How many findings the tool itself says, or has, by a count of our own that knows nothing of the reader; None for other tools."""
    values = json_of(data)
    if values is not None:
        return next((count(values) for is_one, count in JSON if is_one(values)), None)
    if data.lstrip()[:1] == b"<":
        try:
            root = ElementTree.fromstring(data)
        except ElementTree.ParseError:
            return None
        names = Counter(element.tag.rpartition("}")[2] for element in root.iter())
        return next((sum(names[each] for each in counted) for of, counted in XML.items() if names[of]), None)
    try:
        text = data.decode("utf-8-sig")
    except ValueError:
        return None
    one_each = next((name for head, name in CSV.items() if text.startswith(head)), None)
    if one_each is None:
        return None
    rows = [{**row, one_each: ""} for row in csv.DictReader(io.StringIO(text, newline="")) if any(row.values())]
    return len({tuple(row.values()) for row in rows}) if one_each else len(rows)


def json_of(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        pass
    try:
        text, at, values = data.decode("utf-8-sig").strip(), 0, []
        while at < len(text):
            value, end = json.JSONDecoder().raw_decode(text, at)
            values.append(value)
            at = end + len(text[end:]) - len(text[end:].lstrip())
    except ValueError:
        return None
    return values or None


def deep(value: Any, *path: str) -> Iterator[Any]:
    """All that stands at a path of names; lists are gone through on the way."""
    if isinstance(value, list):
        for each in value:
            yield from deep(each, *path)
    elif not path:
        if value is not None:
            yield value
    elif isinstance(value, dict):
        for name in value if path[0] == "*" else [path[0]]:
            if name in value:
                yield from deep(value[name], *path[1:])


def number(*paths: str) -> Callable[[Any], int]:
    return lambda value: sum(1 for path in paths for _ in deep(value, *path.split("/")))


def holds(*paths: str) -> Callable[[Any], bool]:
    """True if something stands at each path, be it empty."""

    def one(value: Any) -> bool:
        for path in paths:
            *way, last = path.split("/")
            if not any(isinstance(each, dict) and last in each for each in deep(value, *way)):
                return False
        return True

    return one


def first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


JSON: list[tuple[Callable[[Any], bool], Callable[[Any], int]]] = [
    (holds("matches", "descriptor/name"), number("matches", "ignoredMatches")),
    (
        holds("SchemaVersion", "ArtifactName"),
        lambda value: (
            number(*(f"Results/{kind}" for kind in ("Vulnerabilities", "Secrets", "Licenses", "ExperimentalModifiedFindings")))(value)
            + sum(each != "PASS" for each in deep(value, "Results", "Misconfigurations", "Status"))
        ),
    ),
    (holds("finding/osv"), lambda value: len({*deep(value, "finding", "osv")})),
    (holds("results/packages/groups"), number("results/packages/groups")),
    (holds("auditReportVersion"), lambda value: value["metadata"]["vulnerabilities"]["total"]),
    (holds("dependencies/vulns"), number("dependencies/vulns")),
    (
        holds("vulnerabilities", "packageManager", "uniqueCount"),
        number("vulnerabilities", "applications/vulnerabilities", "filtered/ignore", "filtered/patch"),
    ),
    (holds("runs/tool"), number("runs/results")),
    (holds("scan/type", "version", "vulnerabilities"), number("vulnerabilities")),
    (holds("security_advisory", "security_vulnerability"), len),
    (holds("data/repository/vulnerabilityAlerts"), number("data/repository/vulnerabilityAlerts/nodes")),
    (holds("data/search/edges/node/vulnerabilityAlerts"), number("data/search/edges/node/vulnerabilityAlerts/nodes")),
    (holds("findings/packageVulnerabilityDetails"), number("findings")),
    (holds("imageScanFindings"), number("imageScanFindings/findings", "imageScanFindings/enhancedFindings")),
    (holds("Findings/ProductArn"), number("Findings")),
    (holds("items/vulnerabilityWithRemediation"), number("items")),
    (holds("reportSchema", "dependencies"), number("dependencies/vulnerabilities", "dependencies/suppressedVulnerabilities")),
    (holds("meta/application", "findings"), number("findings")),
    (holds("component/name", "vulnerability/vulnId"), number("vulnerability/vulnId")),
    (holds("rows/issue_id"), number("rows")),
    (holds("artifacts/issues"), number("artifacts/issues")),
    (holds("total_count", "data/component"), number("data")),
    (holds("vulnerabilities/count", "vulnerabilities/list"), lambda value: value["vulnerabilities"]["count"]),
    (holds("gem", "advisory"), number("advisory")),
    (holds("projects/frameworks"), number("projects/frameworks/*/vulnerabilities")),
    (
        holds("kind", "report/scanner"),
        lambda value: (
            number("report/vulnerabilities", "report/secrets")(value) + sum(not each for each in deep(value, "report", "checks", "success"))
        ),
    ),
]
XML = {
    "NessusClientData_v2": ["ReportItem"],
    "ASSET_DATA_REPORT": ["VULN_INFO"],
    "HOST_LIST_VM_DETECTION_OUTPUT": ["DETECTION"],
    "gmp": ["result"],
    "projectInfo": ["vulnerability", "suppressedVulnerability"],
}
"""The names of the elements that are findings, by that of an element which only this form has."""
CSV = {"Plugin ID,CVE,": "CVE", "Component id,Version id,": "", "Component,Version,Latest version,CVE,": ""}
"""The beginnings of heads, and the column for whose values a finding is repeated."""
