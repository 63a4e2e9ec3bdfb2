"""Trivy: its JSON of images, file systems and clusters, with what an ignore file or a VEX document took out of it."""

from dataclasses import replace
from typing import Any

from buildings.cve.reports.findings import Form
from buildings.cve.reports.formats.any_csv import ROW, has_columns, reader_of
from buildings.cve.reports.items import Items, State, has, table, words

STATUSES = State(
    "Status",
    words(open="affected fixed will_not_fix fix_deferred end_of_life under_investigation unknown", not_affected="not_affected"),
    by="SeveritySource",
)
"""The vendor's word: `fixed` says that a fix exists."""
SET_ASIDE = State("Status", words(suppressed="ignored", not_affected="not_affected", fixed="fixed"), by="Source")


def _kinds(results: str) -> tuple[Items, ...]:
    about = ("^Target + PkgPath", "^Target")
    return (
        Items(
            at=f"{results}Vulnerabilities",
            ids=("VulnerabilityID", "VendorIDs"),
            states=(STATUSES,),
            package="PkgName",
            version="InstalledVersion",
            fixed="FixedVersion",
            place=about,
            severity="Severity",
        ),
        Items(
            at=f"{results}ExperimentalModifiedFindings",
            ids=("Finding.VulnerabilityID", "Finding.VendorIDs", "Finding.ID", "Finding.RuleID", "Finding.Name"),
            said="suppressed",
            by="an ignore file or a VEX document",
            states=(SET_ASIDE,),
            package="Finding.PkgName",
            version="Finding.InstalledVersion",
            fixed="Finding.FixedVersion",
            place="^Target",
            severity="Finding.Severity",
        ),
        Items(
            at=f"{results}Misconfigurations",
            ids="ID",
            place="^Target",
            severity="Severity",
            counts=lambda node: node.value.get("Status") != "PASS",
        ),
        Items(at=f"{results}Secrets", ids="RuleID", place="^Target", severity="Severity"),
        Items(at=f"{results}Licenses", ids="Name", package="PkgName", place=("FilePath", "^Target"), severity="Severity"),
    )


def _of_operator(reports: str) -> tuple[Items, ...]:
    place = ("^artifact.repository + ^artifact.tag + target", "^^metadata.namespace + ^^metadata.name")
    return (
        Items(
            at=f"{reports}report.vulnerabilities",
            ids="vulnerabilityID",
            package="resource",
            version="installedVersion",
            fixed="fixedVersion",
            place=place,
            severity="severity",
        ),
        Items(at=f"{reports}report.secrets", ids="ruleID", place=place, severity="severity"),
        Items(
            at=f"{reports}report.checks",
            ids=("checkID", "id"),
            place=place,
            severity="severity",
            counts=lambda node: node.value.get("success") is not True,
        ),
    )


def _is_of_operator(value: Any) -> bool:
    return any(has(f"{reports}apiVersion", f"{reports}report")(value) for reports in ("", "items."))


FORMS = (
    Form(
        name="Trivy",
        syntax="json",
        recognises=lambda value: has("SchemaVersion", "ArtifactName")(value) or has("Results.Target")(value),
        read=table(*_kinds("Results.")),
    ),
    Form(
        name="Trivy of a cluster",
        syntax="json",
        recognises=has("ClusterName"),
        read=table(*_kinds("Resources.Results."), *_kinds("Vulnerabilities.Results."), *_kinds("Misconfigurations.Results.")),
    ),
    Form(name="Trivy Operator", syntax="json", recognises=_is_of_operator, read=table(*_of_operator(""), *_of_operator("items."))),
    Form(name="Trivy", syntax="json", recognises=has("Target", "Type"), read=table(*_kinds(""))),
    Form(
        name="Trivy table",
        syntax="csv",
        recognises=has_columns("library", "installedversion", "fixedversion"),
        read=reader_of(replace(ROW, states=(replace(STATUSES, at="status"),))),
    ),
)
