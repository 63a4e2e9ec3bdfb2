"""OSV-Scanner: a finding is a group, which has all names of one vulnerability in one package."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import Items, State, either, has, words
from buildings.cve.reports.paths import Node, first_text, nodes, texts

ABOUT: dict[str, Any] = {"package": "^package.name", "version": ("^package.version", "^package.commit"), "place": "^^source.path"}
IS_CALLED = "experimentalAnalysis.{}.called"
CALLED = State(IS_CALLED, words(open="true"))
"""A finding that is not called stays open: that no path to it was seen does not say that there is none."""
GROUP = Items(at="results.packages.groups", ids=("ids", "aliases"), states=(CALLED,), severity="max_severity", **ABOUT)
ALONE = Items(at="results.packages.vulnerabilities", ids=("id", "aliases"), severity="database_specific.severity", **ABOUT)


def _read(value: Any) -> Iterator[Finding | Unreadable]:
    for package in nodes(Node(value), "results.packages"):
        by_id = {name: each for each in nodes(package, "vulnerabilities") for name in texts(each, "id")}
        grouped: set[str] = set()
        for group in nodes(package, "groups"):
            named = [by_id[each] for each in texts(group, "ids") if each in by_id]
            grouped.update(texts(group, "ids"))
            finding = GROUP.finding(group, "results.packages.groups")
            if isinstance(finding, Finding) and not finding.state and texts(group, IS_CALLED):
                finding = replace(finding, state="not called")
            yield _with_details(finding, package, named)
        for name, alone in by_id.items():
            if name not in grouped:
                yield _with_details(ALONE.finding(alone, "results.packages.vulnerabilities"), package, [alone])


def _with_details(finding: Finding | Unreadable, package: Node, named: list[Node]) -> Finding | Unreadable:
    if isinstance(finding, Unreadable):
        return finding
    own = first_text(package, ("package.name",))
    affected = [each for one in named for each in nodes(one, "affected") if first_text(each, ("package.name",)) in ("", own)]
    fixed = [text for each in affected for text in texts(each, "ranges.events.fixed")]
    severity = next((found for one in named if (found := first_text(one, ("database_specific.severity",)))), finding.severity)
    return replace(finding, fixed=", ".join(dict.fromkeys(fixed))[:300], severity=severity)


FORMS = (
    Form(
        name="OSV-Scanner",
        recognises=either(has("results.packages.package"), has("results.source.path"), has("results", "experimental_config")),
        read=_read,
    ),
)
