"""Reads the findings in the JSON of scanners: what it marks as suppressed, ignored, not affected or a mere reference is none. Pure.

The formats differ, but not in how they mark it. An object with an identifier of a vulnerability is an item (a match of Grype, a
vulnerability of Trivy, CycloneDX, OSV or CSAF, a result of SARIF, a statement of VEX). Members that are not known are searched.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pydantic_core import from_json

WELL_FORMED = re.compile(r"(?<![^\W_])CVE-[0-9]{4}-[0-9]{4,12}(?![^\W_])", re.IGNORECASE)
OTHER_SCHEME = re.compile(
    r"(?<![^\W_])(?:GHSA(?:-[0-9a-z]{4}){3}|(?:PYSEC|RUSTSEC|OSV|GO|MAL|GSD|EUVD|ELSA|RLSA|ALSA|ALAS[0-9A-Z.]*)-[0-9]{4}-[0-9]+"
    r"|RH[SBE]A-[0-9]{4}:[0-9]+|(?:DSA|DLA|USN)-[0-9]+(?:-[0-9]+)?|(?:open)?SUSE-[SRO]U-[0-9]{4}:[0-9]+(?:-[0-9]+)?|GLSA-[0-9]{6}-[0-9]+"
    r"|SNYK-[A-Z0-9]+-[A-Z0-9]+-[0-9]+|TEMP-[0-9]{7}-[0-9A-F]{6})(?![^\W_])",
    re.IGNORECASE,
)

IDENTIFIERS = frozenset(
    {"id", "ruleid", "vulnerabilityid", "cve", "cveid", "ghsaid", "advisoryid", "name", "vulnerability", "securityadvisory"}
)
"""Members that identify an item, without dashes and underscores; the last two hold an object that does."""
NO_FINDINGS = frozenset(
    {"ignore", "filtered", "experimentalmodifiedfindings", "externalreferences", "externalrefs", "pedigree", "descriptor"}
)
"""Grype's `descriptor` holds its configuration, CycloneDX's `pedigree` the patches of a component."""
NO_FINDINGS_BEGIN = ("ignored", "suppressed", "related")
EQUIVALENT = frozenset({"relatedvulnerabilities", "references"})
"""What else an item is called (Grype, CycloneDX): read where its own identifier is no CVE. In other formats references are addresses."""
PROSE = frozenset({"title", "summary", "description", "detail", "details", "recommendation", "notes", "advisories", "urls", "vendorids"})
"""Members of an item that may name other vulnerabilities than its own."""
FLAGS = frozenset({"ignored", "suppressed", "isignored", "issuppressed", "falsepositive", "isfalsepositive"})
MARKS = FLAGS | {"suppressions", "baselinestate", "kind", "state", "status", "analysis", "productstatus"}
"""Members that may say that an object is no finding."""
NOT_AFFECTED = frozenset({"not_affected", "known_not_affected", "false_positive", "resolved", "resolved_with_pedigree"})
AFFECTED = ("known_affected", "first_affected", "last_affected", "under_investigation")


@dataclass
class Findings:
    """The texts in which a report, or an item in it, names its findings, and the identifiers of other schemes.

    `named` are those of them that a CVE of the same item stands for; `has_cve` is whether a text has a CVE.
    """

    texts: list[str] = field(default_factory=list)
    others: dict[str, None] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    has_cve: bool = False

    def add(self, text: str) -> None:
        """Add a text."""
        self.texts.append(text)
        if "-" in text:
            self.has_cve = self.has_cve or WELL_FORMED.search(text) is not None
            self.others |= dict.fromkeys(others_in(text))

    def add_item(self, item: "Findings") -> None:
        """Add an item, which has the same lists: a CVE in it stands for its identifiers of other schemes."""
        self.has_cve = self.has_cve or item.has_cve
        if item.has_cve:
            self.named |= item.others.keys()
        else:
            self.others |= item.others


def others_in(text: str) -> list[str]:
    """The identifiers of other schemes in a text."""
    return [match[0] for match in OTHER_SCHEME.finditer(text)]


def findings_in(report: str) -> Findings | None:
    """The findings of a report in JSON; None if it is not JSON, or nested too deeply to be a report."""
    if not report.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
        return None
    try:
        document = from_json(report.lstrip("\ufeff").encode("utf-8", "replace"))
    except ValueError:
        return None
    found = Findings()
    _read(document, found)
    return found


def _read(value: Any, found: Findings) -> None:
    if isinstance(value, str):
        found.add(value)
    elif isinstance(value, list):
        for one in value:
            _read(one, found)
    elif isinstance(value, dict) and value and not _is_settled(value):
        _read_object(value, found)


def _read_object(value: Mapping[str, Any], found: Findings) -> None:
    own = " ".join(_identifiers(value))
    is_cve = WELL_FORMED.search(own) is not None
    is_item = is_cve or OTHER_SCHEME.search(own) is not None
    inside = Findings(texts=found.texts, named=found.named) if is_item else found
    if is_run := isinstance(value.get("results"), list) and isinstance(value.get("tool"), dict):
        _read_run(value, inside)
    for name, member in value.items():
        kind = _plain(name)
        if kind in NO_FINDINGS or (is_run and name in ("tool", "results")) or (is_item and kind in PROSE):
            continue
        if kind in EQUIVALENT:
            if is_item and not is_cve:
                _read([one["id"] for one in _objects(member) if isinstance(one.get("id"), str)], inside)
        elif not kind.startswith(NO_FINDINGS_BEGIN) and not (isinstance(member, dict) and _is_settled(member)):
            inside.add(name)
            _read(member, inside)
    if is_item:
        found.add_item(inside)


def _read_run(run: Mapping[str, Any], found: Findings) -> None:
    """The results of a run in SARIF, each with the description of its rule if it has no CVE itself."""
    tool = run["tool"]
    driver = _objects(_object(tool.get("driver")).get("rules"))
    extensions = [rule for one in _objects(tool.get("extensions")) for rule in _objects(one.get("rules"))]
    by_id = {rule["id"]: rule for rule in (*extensions, *driver) if isinstance(rule.get("id"), str)}
    for result in _objects(run["results"]):
        if _is_settled(result):
            continue
        about = _object(result.get("rule"))
        rule_id = result.get("ruleId", about.get("id"))
        index = result.get("ruleIndex", about.get("index"))
        in_driver = isinstance(index, int) and 0 <= index < len(driver) and not about.get("toolComponent")
        rule = (by_id.get(rule_id) if isinstance(rule_id, str) else None) or (driver[index] if in_driver else {})
        item = {"ruleId": rule_id if isinstance(rule_id, str) else rule.get("id"), **{k: v for k, v in result.items() if k != "ruleId"}}
        if not WELL_FORMED.search(str(item["ruleId"])):
            item["rule"] = {name: rule.get(name) for name in ("shortDescription", "fullDescription", "properties", "deprecatedIds")}
        _read(item, found)


def _is_settled(value: Mapping[str, Any]) -> bool:
    """Whether an object is marked as suppressed, dismissed, absent, not affected, or fixed where that is not "a fix exists"."""
    if MARKS.isdisjoint(map(_plain, value)):
        return False
    if any(member is True and _plain(name) in FLAGS for name, member in value.items()):
        return True
    suppressions = _objects(value.get("suppressions"))  # SARIF: suppressed unless a suppression is under review or was rejected
    if suppressions and all(suppression.get("status") in (None, "accepted") for suppression in suppressions):
        return True
    if value.get("baselineState") == "absent" or value.get("kind") in ("pass", "notApplicable"):
        return True
    if value.get("state") in ("dismissed", "auto_dismissed"):
        return True
    status = value.get("status", value.get("Status"))
    if status in ("not_affected", "known_not_affected") or (status == "fixed" and "vulnerability" in value):
        return True  # Trivy's status `fixed` says that a fix exists; that of a VEX statement, that there is nothing left to do
    if _object(value.get("analysis")).get("state") in NOT_AFFECTED:
        return True
    products = _object(value.get("product_status"))
    return bool(products) and not any(products.get(name) for name in AFFECTED)


def _identifiers(value: Mapping[str, Any]) -> Iterable[str]:
    """The identifiers of an item: members whose text begins with one."""
    for name, member in value.items():
        if _plain(name) not in IDENTIFIERS:
            continue
        if isinstance(member, dict):
            yield from (text for text in member.values() if isinstance(text, str) and _is_identifier(text))
        elif isinstance(member, str) and _is_identifier(member):
            yield member


def _is_identifier(text: str) -> bool:
    return (WELL_FORMED.match(text) or OTHER_SCHEME.match(text)) is not None


@lru_cache(4_096)
def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Sequence[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
