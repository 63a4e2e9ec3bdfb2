"""CSV of any tool with a column of vulnerabilities: columns are known by their names, identifiers also by their form.

Each row is a finding. A row that names no vulnerability stands under what it calls itself: its number, its rule or its title.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import Items, Paths, State, words
from buildings.cve.reports.paths import Match, Node, match
from buildings.cve.reports.rows import ID_COLUMNS
from buildings.cve.reports.schemes import ids_in

WORDS = words(
    open="open opened active new affected detected confirmed reopened re_opened existing unresolved vulnerable in_progress to_do"
    " under_investigation exploitable in_triage not_set needs_review under_review to_fix",
    fixed="closed resolved remediated remediation_complete resolved_with_pedigree patched",
    suppressed="ignored suppressed dismissed auto_dismissed muted risk_accepted accepted_risk accepted wont_fix",
    not_affected="not_affected false_positive known_not_affected not_vulnerable",
)
"""`fixed` is not among them: where a table has a column of fixed versions too, it may say that a fix exists. Then it is unknown."""
FLAG = words(open="no 0 _", suppressed="true yes 1")
OWN = ("id", "issueid", "findingid", "ruleid", "rule", "checkid", "title", "name", "issue", "vulnerabilityname", "summary", "finding")
SAMPLE = 1_000
"""Rows in which a column without a known name is looked at for identifiers."""

STATES = "status state findingstatus vulnerabilitystatus vulnstatus remediationstatus analysisstate triagestatus"
FLAGS = "riskaccepted falsepositive suppressed ignored isignored issuppressed mitigated mitigation"
PACKAGES = (
    "packagename package packages pkgname componentname component library libraryname dependencyname artifact module affectedpackages"
    " affectedpackage cvecausedbypackage vulnpackage product productname software name detailedname"
)
VERSIONS = (
    "installedversion installed packageversion packageinstalledversion componentversionname componentversion currentversion versioninuse"
    " pkgversion version"
)
FIXED = "fixedversion fixedversions fixedin fixedinversion fixversion fixversions cvefixedin patchedversion firstpatchedversion"
HOSTS = ("target", "image", "imagename", "repository : tag", "host : port", "hostname : port", "ip : port", "ipaddress : port")
PLACES = "resourceid assetname resourcename packagepath filepath path location locationpath project projectname"
ROW = Items(
    at=".",
    ids="ids",
    states=(*(State(name, WORDS) for name in STATES.split()), *(State(name, FLAG) for name in FLAGS.split())),
    package=tuple(PACKAGES.split()),
    version=tuple(VERSIONS.split()),
    fixed=(
        *FIXED.split(),
        match("fixstatus", r"fixed in (.+)"),
        *("fix", "fixedinversions", "remediatedversion", "fixavailable", "solution", "remediation"),
    ),
    place=(*HOSTS, *PLACES.split()),
    severity=("severity", "cveseverity", "securityrisk", "risk", "threat", "vendorseverity", "cvssseverity", "severitylevel"),
)
"""Columns by what they hold, the likeliest name first."""

TOOLS = (
    ("Prisma Cloud CSV", {"cveid", "fixstatus"}),
    ("Amazon Inspector CSV", {"findingarn", "vulnerabilityid"}),
    ("Sysdig CSV", {"cveid", "packagepath"}),
    ("Grype table", {"vulnerability", "fixedin", "installed"}),
)
"""Tools whose columns are all among the names above, and the columns by which they are recognised."""


def reader_of(row: Items) -> Callable[[Any], Iterator[Finding | Unreadable]]:
    """Reads rows whose columns are those of `row`."""

    def read(rows: list[dict[str, str]]) -> Iterator[Finding | Unreadable]:
        columns = tuple(_id_columns(rows))
        narrow = _narrowed(row, {name for cells in rows[:SAMPLE] for name in cells})
        for place, cells in enumerate(rows, start=1):
            ids = [each for name in columns for each in ids_in(cells.get(name, ""))]
            own = next((cells[name] for name in (*columns, *OWN) if cells.get(name)), "")
            yield narrow.finding(Node({**cells, "ids": ids or [own]}), f"item {place}")

    return read


def _narrowed(row: Items, columns: set[str]) -> Items:
    """`row` without what a table has no columns for: a large table is read four times as fast."""

    def those_of(paths: Paths) -> Paths:
        each = (paths,) if isinstance(paths, str | Match) else paths
        return tuple(path for path in each if (path.path if isinstance(path, Match) else path.partition(" ")[0]) in columns)

    is_plain = not those_of(row.fixed)
    return replace(
        row,
        states=tuple(
            replace(state, words={**state.words, "fixed": "fixed"}) if is_plain else state for state in row.states if state.at in columns
        ),
        package=those_of(row.package),
        version=those_of(row.version),
        fixed=those_of(row.fixed),
        place=those_of(row.place),
        severity=those_of(row.severity),
    )


def _id_columns(rows: list[dict[str, str]]) -> Iterable[str]:
    named = {name: None for cells in rows[:1] for name in cells if name in ID_COLUMNS}
    return named or dict.fromkeys(name for cells in rows[:SAMPLE] for name, cell in cells.items() if cell in ids_in(cell))


def has_columns(*names: str) -> Callable[[list[dict[str, str]]], bool]:
    """Recognises tables that have all these columns."""
    return lambda rows: bool(rows) and rows[0].keys() >= set(names)


FORMS = (
    *(Form(name=name, syntax="csv", recognises=has_columns(*columns), read=reader_of(ROW)) for name, columns in TOOLS),
    Form(
        name="CSV",
        syntax="csv",
        recognises=lambda rows: True,
        read=reader_of(ROW),
        generic=True,
        note="The form of this CSV is not known: each row is a finding, and columns were recognised by their names.",
    ),
)
