"""XCCDF results of OpenSCAP and others: each rule that a host fails is a finding; those it passes are none."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, State, has, words
from buildings.cve.reports.paths import first_text

PASSED = ("pass", "notapplicable", "notselected", "notchecked", "informational")


def _rules(at: str) -> Items:
    return Items(
        at=f"{at}TestResult.rule-result",
        ids="ident",
        or_else="@idref",
        states=(State("result", words(open="fail", fixed="fixed")),),
        package="@idref",
        place=("^target", "^target-address"),
        severity="@severity",
        counts=lambda node: first_text(node, ("result",)).lower() not in PASSED,
    )


FORMS = (
    Form(name="XCCDF", syntax="xml", recognises=has("Benchmark.TestResult"), read=_rules("Benchmark.").read),
    Form(name="XCCDF", syntax="xml", recognises=has("TestResult.rule-result"), read=_rules("").read),
)
