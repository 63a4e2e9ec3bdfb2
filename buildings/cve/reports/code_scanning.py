"""The findings of a report as SARIF 2.1.0, for code scanning and other tools that show where what is to be fixed. Pure.

A level follows from when to fix a finding, not from its severity. Of what the report calls settled each result says so.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from pydantic_core import to_json

from buildings.cve.reports.accounting import Bucket, FindingRow

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MOST_RESULTS = 25_000
"""Code scanning takes no more; the first to fix come first."""
LEVELS: dict[Bucket, tuple[str, str]] = {"today": ("error", "9.0"), "this_week": ("warning", "7.0"), "later": ("note", "4.0")}
UNTOLD = ("warning", "7.0")
"""The level of findings of which nobody knows whether they matter: not the lowest."""
SETTLED: dict[Bucket, dict[str, Any]] = {
    "suppressed": {"suppressions": [{"kind": "external", "status": "accepted"}]},
    "not_affected": {"kind": "notApplicable", "level": "none"},
    "fixed": {"kind": "pass", "level": "none"},
}


def sarif_of(rows: Iterable[FindingRow], *, day: str) -> str:
    """One run; each finding is a result, and each identifier a rule."""
    results: list[dict[str, Any]] = []
    rules: dict[str, dict[str, Any]] = {}
    for row in rows:
        if len(results) == MOST_RESULTS:
            break
        rule = row.cve_id or row.id or "unreadable"
        level, severity = LEVELS.get(row.bucket, UNTOLD)
        rules.setdefault(rule, _rule(rule, severity))
        results.append(_result(row, rule, level))
    driver = {"name": "Daily CVE prioritization", "semanticVersion": "1.0.0", "properties": {"list": day}, "rules": list(rules.values())}
    return to_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}, indent=1).decode()


def _rule(rule: str, severity: str) -> dict[str, Any]:
    about: dict[str, Any] = {"id": rule, "shortDescription": {"text": rule}, "properties": {"security-severity": severity}}
    return about | ({"helpUri": f"https://www.cve.org/CVERecord?id={rule}"} if rule.startswith("CVE-") else {})


def _result(row: FindingRow, rule: str, level: str) -> dict[str, Any]:
    place = row.place or row.package or "report"
    same = "\0".join(text or "" for text in (rule, row.id, row.package, row.installed_version, row.place))
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": _message(row)},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": quote(place)}, "region": {"startLine": 1}}}],
        "partialFingerprints": {"finding/v1": sha256(same.encode()).hexdigest()},
        "properties": row.model_dump(exclude_none=True, mode="json"),
    } | SETTLED.get(row.bucket, {})


def _message(row: FindingRow) -> str:
    what = " ".join(text for text in (row.package, row.installed_version) if text)
    known = [text for held, text in ((row.kev, "attackers use it"), (row.ransomware, "ransomware uses it")) if held]
    known += [f"EPSS {row.epss:.1%}"] if row.epss is not None else []
    known += [f"fixed in {row.fixed_version}"] if row.fixed_version else []
    known += [text for text in (row.state, row.reason) if text]
    name = f"{row.cve_id or row.id or 'unreadable'}{f' in {what}' if what else ''}"
    return f"{row.bucket.replace('_', ' ')}: {name}. {'; '.join(known)}".strip()
