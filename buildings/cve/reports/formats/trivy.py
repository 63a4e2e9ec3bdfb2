"""Trivy: its JSON of images, file systems and clusters, with what an ignore file or a VEX document took out of it."""

from dataclasses import replace

from buildings.cve.reports.findings import Form
from buildings.cve.reports.formats.any_csv import ROW, has_columns, reader_of
from buildings.cve.reports.items import Items, State, either, has, table, words

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
        ),
        Items(at=f"{reports}report.secrets", ids="ruleID", place=place),
        Items(at=f"{reports}report.checks", ids=("checkID", "id"), place=place, counts=lambda node: node.value.get("success") is not True),
    )


FORMS = (
    Form(name="Trivy", recognises=either(has("SchemaVersion", "ArtifactName"), has("Results.Target")), read=table(*_kinds("Results."))),
    Form(
        name="Trivy of a cluster",
        recognises=has("ClusterName"),
        read=table(*_kinds("Resources.Results."), *_kinds("Vulnerabilities.Results."), *_kinds("Misconfigurations.Results.")),
    ),
    Form(
        name="Trivy Operator",
        recognises=either(has("apiVersion", "report"), has("items.apiVersion", "items.report")),
        read=table(*_of_operator(""), *_of_operator("items.")),
    ),
    Form(name="Trivy", recognises=has("Target", "Type"), read=table(*_kinds(""))),
    Form(
        name="Trivy table",
        syntax="csv",
        recognises=has_columns("library", "installedversion", "fixedversion"),
        read=reader_of(replace(ROW, states=(replace(STATUSES, at="status"),))),
    ),
)
