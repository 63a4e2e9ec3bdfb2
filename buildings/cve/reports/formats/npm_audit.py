"""npm audit 6 and 7 or later, and the audits of pnpm and yarn, which have taken both forms over."""

from collections.abc import Iterator
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import Items, either, has, table, total
from buildings.cve.reports.paths import Node, first_text, match, nodes, texts
from buildings.cve.reports.schemes import ids_in

LEVELS = ("info", "low", "moderate", "high", "critical")


def _advisory(at: str, advisory: str, finding: str, **also: Any) -> Items:
    """A path to a vulnerable package, which is what npm 6 counts."""
    return Items(
        at=at,
        ids=(f"{advisory}github_advisory_id", f"{advisory}cves"),
        named_in=f"{advisory}url",
        or_else=(f"{advisory}url", f"{advisory}id"),
        package=f"{advisory}module_name",
        version=f"{finding}version",
        fixed=match(f"{advisory}patched_versions", r"^(?!<0\.0\.0$)(.+)$"),
        severity=f"{advisory}severity",
        **also,
    )


def _packages(value: Any) -> Iterator[Finding | Unreadable]:
    """The vulnerable packages, which is what npm 7 counts: each with the advisories that it has, by itself or by what it depends on."""
    packages = {package.name: package for package in nodes(Node(value), "vulnerabilities.{}")}
    for name, package in packages.items():
        advisories = _advisories(name, packages)
        ids = dict.fromkeys(each for advisory in advisories for text in texts(advisory, "url") for each in ids_in(text))
        if not ids:
            ids = dict.fromkeys(text for advisory in advisories for text in texts(advisory, "url") or texts(advisory, "source"))
        if not ids:
            yield Unreadable(f"vulnerabilities {name}", "leads to no advisory")
            continue
        yield Finding(
            ids=tuple(ids)[:200],
            package=name,
            fixed=first_text(package, ("fixAvailable.name + fixAvailable.version",)),
            place=first_text(package, ("nodes",)),
            severity=first_text(package, ("severity",)),
        )


def _advisories(name: str, packages: dict[str, Node]) -> list[Node]:
    found, seen, waiting = [], {name}, [name]
    while waiting:
        for via in nodes(packages[waiting.pop()], "via"):
            if isinstance(via.value, dict):
                found.append(via)
            elif via.value in packages and via.value not in seen:
                seen.add(via.value)
                waiting.append(via.value)
    return found


FORMS = (
    Form(
        name="npm audit 7",
        recognises=either(has("auditReportVersion", "vulnerabilities"), has("vulnerabilities.{}.via")),
        read=_packages,
        claimed=total("metadata.vulnerabilities.total"),
    ),
    Form(
        name="npm audit 6",
        recognises=has("advisories", "metadata"),
        read=table(
            _advisory("advisories.{}.findings.paths", "^^", "^", place="."),
            _advisory("advisories.{}.findings", "^", "", counts=lambda node: not node.value.get("paths")),
        ),
        claimed=total(*(f"metadata.vulnerabilities.{level}" for level in LEVELS)),
    ),
    Form(
        name="yarn audit",
        recognises=has("type", "data"),
        read=_advisory("[type=auditAdvisory].data", "advisory.", "advisory.findings.", place="resolution.path").read,
        claimed=total(*(f"data.vulnerabilities.{level}" for level in LEVELS)),
    ),
    Form(
        name="yarn npm audit",
        recognises=has("value", "children.ID"),
        read=Items(
            at="children",
            ids=(),
            named_in="URL",
            or_else=("URL", "ID"),
            package="^value",
            version="'Tree Versions'",
            place="Dependents",
            severity="Severity",
        ).read,
    ),
)
