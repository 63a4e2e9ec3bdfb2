"""SARIF of any tool: each result of a run, with what its rule says of it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import Items, State, has, words
from buildings.cve.reports.paths import Node, match, nodes, texts

RESULT = Items(
    at=".",
    ids=("ruleId", "rule.deprecatedIds", "rule.properties.cve", "properties.cve"),
    named_in=("rule.name", "rule.properties.tags", "rule.shortDescription.text", "rule.fullDescription.text", "message.text"),
    or_else=("rule.name", "message.text"),
    states=(
        State("baselineState", words(open="new unchanged updated", fixed="absent")),
        State("kind", words(open="fail open review informational", not_affected="pass notapplicable")),
    ),
    package=(
        *("properties.packageName", "properties.package", "rule.properties.packageName", "rule.properties.purls"),
        match("message.text", r"^Package: (.+)$|package '([^']+)'"),
    ),
    version=("properties.packageVersion", match("message.text", r"^Installed Version: (.+)$|at version '?([\w.:~+-]+)")),
    fixed=("properties.fixedVersion", "rule.properties.fixed_version", match("message.text", r"Fixed Version: (\S.*)$")),
    place=(
        "locations.physicalLocation.artifactLocation.uri + locations.physicalLocation.region.startLine",
        "locations.logicalLocations.fullyQualifiedName",
    ),
    severity=("rule.properties.problem.severity", "rule.properties.security-severity", "level", "rule.defaultConfiguration.level"),
)
ACCEPTED = ("accepted", "")
NOT_YET = ("underreview", "rejected")


def _read(value: Any) -> Iterator[Finding | Unreadable]:
    for run in nodes(Node(value), "runs"):
        rules = _Rules(run)
        for place, result in enumerate(nodes(run, "results"), start=1):
            if not isinstance(result.value, Mapping):
                yield Unreadable(f"runs.results {place}", "is no object")
                continue
            rule = rules.of(result)
            about = dict(result.value) | {"rule": rule}
            about["ruleId"] = next((each for each in (*texts(result, "ruleId"), *texts(result, "rule.id"), *texts(Node(rule), "id"))), "")
            yield _suppressed(RESULT.finding(Node(about, "", run), f"item {place}"), result)


class _Rules:
    """The rules of a run's tool and its extensions, as results name them: by index or by identifier."""

    def __init__(self, run: Node) -> None:
        driver = [each.value for each in nodes(run, "tool.driver.rules")]
        self._by_place = driver
        self._by_id = {rule["id"]: rule for each in nodes(run, "tool.extensions.rules") for rule in (each.value,) if _has_id(rule)}
        self._by_id |= {rule["id"]: rule for rule in driver if _has_id(rule)}

    def of(self, result: Node) -> Mapping[str, Any]:
        for name in (*texts(result, "ruleId"), *texts(result, "rule.id")):
            if name in self._by_id:
                rule: Mapping[str, Any] = self._by_id[name]
                return rule
        place = next((each for each in (*texts(result, "ruleIndex"), *texts(result, "rule.index")) if each.isdecimal()), None)
        if place is None or int(place) >= len(self._by_place) or texts(result, "rule.toolComponent.index"):
            return {}
        placed = self._by_place[int(place)]
        return placed if isinstance(placed, Mapping) else {}


def _has_id(rule: Any) -> bool:
    return isinstance(rule, Mapping) and isinstance(rule.get("id"), str)


def _suppressed(finding: Finding | Unreadable, result: Node) -> Finding | Unreadable:
    """A result is suppressed if it has suppressions and none of them is under review or was rejected."""
    suppressions = list(nodes(result, "suppressions"))
    if isinstance(finding, Unreadable) or not suppressions:
        return finding
    statuses = [next(iter(texts(each, "status")), "") for each in suppressions]
    whose = next((text for each in suppressions for name in ("justification", "kind") for text in texts(each, name)), "suppressions")
    if all(status.lower() in ACCEPTED for status in statuses):
        return replace(finding, said="suppressed", state=statuses[0] or "suppressed", by=whose[:300])
    odd = next((status for status in statuses if status.lower() not in (*ACCEPTED, *NOT_YET)), None)
    return replace(finding, said="unknown", state=odd[:300]) if odd and finding.said == "open" else finding


FORMS = (Form(name="SARIF", recognises=has("runs", "version"), read=_read),)
