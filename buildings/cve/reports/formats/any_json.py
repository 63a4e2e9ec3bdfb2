"""JSON of no known form: an object that calls itself by an identifier is a finding, and so is each CVE that stands elsewhere."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from buildings.cve.reports.findings import Finding, Form
from buildings.cve.reports.items import Items, Judged, State, judge, words
from buildings.cve.reports.paths import Node, texts
from buildings.cve.reports.schemes import cves_in, ids_from_the_start, ids_in

OWN = re.compile(r"(?:id|name|cve|cves|cveids?|vulnerability(?:id|name)?|vulnid|ruleid|ghsaid|advisory(?:id)?|title)", re.IGNORECASE)
ALSO = re.compile(r"(?:alias|identifier|related|reference|cve)", re.IGNORECASE)
PROSE = re.compile(
    r"(?:desc|summary|detail|title|note|recommend|remediat|solution|url|link|message|text|overview|advisor|refer)", re.IGNORECASE
)
SET_ASIDE = re.compile(r"(?:ignored|suppressed|filtered|excluded|dismissed|waived|accepted|whitelist|allowlist)", re.IGNORECASE)
STATES = ("state", "State", "status", "Status", "analysis.state", "analysisState", "vulnerabilityStatus", "remediationStatus")
WORDS = words(
    open="fail failed open opened active new affected exploitable in_triage detected confirmed under_investigation known_affected"
    " vulnerable reopened",
    suppressed="ignored suppressed dismissed auto_dismissed muted risk_accepted accepted",
    not_affected="not_affected known_not_affected false_positive pass passed",
    fixed="resolved closed remediated resolved_with_pedigree",
)
"""`fixed` is not among them: it says that nothing is left to do in one tool, and that a fix exists in another."""
FLAGS = ("ignored", "suppressed", "isIgnored", "isSuppressed", "falsePositive", "isFalsePositive", "is_ignored", "is_suppressed")
FINDING = Items(
    at=".",
    ids=".",
    states=(*(State(flag, words(suppressed="true")) for flag in FLAGS), *(State(name, WORDS) for name in STATES)),
    package=(*("package.name", "packageName", "package_name", "PackageName", "pkgName", "component.name", "componentName"), "package"),
    version=(
        *("package.version", "packageVersion", "package_version", "installedVersion", "installed_version", "component.version"),
        "version",
    ),
    fixed=("fixedVersion", "fixed_version", "fixedVersions", "fixedIn", "fixed_in", "fix.versions", "fix_versions", "patched_versions"),
    place=("path", "filePath", "file", "location", "target", "host", "image"),
    severity=("severity", "Severity", "severity.name", "risk"),
)
"""How members of findings are mostly called; the same names of the object around are read if a finding has none."""


def _read(value: Any) -> Iterator[Finding]:
    seen: set[str] = set()
    for finding in _findings(Node(value), Judged()):
        seen.update(finding.ids)
        yield finding
    mentioned = dict.fromkeys(cve_id for text in _strings(value) for cve_id in cves_in(text))
    for cve_id in mentioned:
        if cve_id not in seen:
            yield Finding(ids=(cve_id,), said="unknown", state="only mentioned in a text")


def _findings(node: Node, around: Judged) -> Iterator[Finding]:
    """The findings in a value; `around` is what the objects say that it stands in."""
    value = node.value
    if isinstance(value, list):
        for each in value:
            yield from _findings(Node(each, node.name, node.within), around)
    elif isinstance(value, str):
        if not PROSE.search(node.name):
            yield from (_finding(Node({}, "", node.within), [each], around) for each in dict.fromkeys(ids_in(value)))
    elif isinstance(value, Mapping):
        yield from _findings_of_object(node, around)


def _findings_of_object(node: Node, around: Judged) -> Iterator[Finding]:
    own = [
        each for name, member in node.value.items() if OWN.fullmatch(name) for text in _strings(member) for each in ids_from_the_start(text)
    ]
    if SET_ASIDE.match(node.name):
        around = Judged("suppressed", node.name, node.name)
    around = judge(node, FINDING.states, otherwise=around)
    inside = [
        finding
        for name, member in node.value.items()
        if isinstance(member, dict | list) and not (own and (OWN.fullmatch(name) or ALSO.match(name) or PROSE.search(name)))
        for finding in _findings(Node(member, name, node), around)
    ]
    if own and not any(finding.package or finding.severity for finding in inside):
        also = [each for name, member in node.value.items() if ALSO.match(name) for text in _strings(member) for each in ids_in(text)]
        yield _finding(node, [*own, *also, *(each for finding in inside for each in finding.ids)], around)
        return
    yield from inside
    if not own:
        for name, member in node.value.items():
            if isinstance(member, str):
                yield from _findings(Node(member, name, node), around)


def _finding(node: Node, ids: list[str], judged: Judged) -> Finding:
    near = [each for each in (node, node.within, node.within and node.within.within) if each]
    of_findings = [each for each in near if each is node or each.within]  # the version of the whole document is the tool's

    def said_of(name: str) -> str:
        around = of_findings if name == "version" else near
        return next((", ".join(found)[:300] for each in around for path in getattr(FINDING, name) if (found := texts(each, path))), "")

    members = {name: said_of(name) for name in ("package", "version", "fixed", "place", "severity")}
    return Finding(ids=tuple(dict.fromkeys(ids)), said=judged.said, state=judged.state, by=judged.by, **members)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, Mapping):
        for name, member in value.items():
            yield name
            yield from _strings(member)


FORMS = (
    Form(
        name="JSON",
        recognises=lambda value: True,
        read=_read,
        generic=True,
        note="The form of this JSON is not known: findings were recognised by identifiers of vulnerabilities in it.",
    ),
)
