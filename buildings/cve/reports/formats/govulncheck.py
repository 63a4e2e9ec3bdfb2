"""govulncheck: a stream of objects, of which only `finding`s are findings: one for each entry of the database that the code reaches."""

from collections.abc import Iterator
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.items import Items, either, has
from buildings.cve.reports.paths import Node, first_text, nodes, texts
from buildings.cve.reports.schemes import own_ids

REACHES = {"function": "called", "package": "imported", "module": "required"}
"""How near the code comes, from what the first frame of a trace names."""


def _read(value: Any) -> Iterator[Finding]:
    root = Node(value)
    entries = {text: entry for entry in nodes(root, "osv") for text in texts(entry, "id")}
    found: dict[str, list[Node]] = {}
    for finding in nodes(root, "finding"):
        for name in texts(finding, "osv"):
            found.setdefault(name, []).append(finding)
    for name, traces in found.items():
        frames = [next(nodes(each, "trace"), Node({})) for each in traces]
        level, nearest = min((_level(frame), place) for place, frame in enumerate(frames))
        entry = entries.get(name, Node({}))
        yield Finding(
            ids=tuple(own_ids([name, *texts(entry, "aliases")])),
            state=list(REACHES.values())[level],
            package=", ".join(dict.fromkeys(text for frame in frames for text in texts(frame, "module")))[:300],
            version=", ".join(dict.fromkeys(text for frame in frames for text in texts(frame, "version")))[:300],
            fixed=first_text(traces[nearest], ("fixed_version",)),
            place=_place(traces[nearest]),
            severity=first_text(entry, ("database_specific.severity",)),
        )


def _level(frame: Node) -> int:
    return next((level for level, name in enumerate(REACHES) if texts(frame, name)), len(REACHES) - 1)


def _place(finding: Node) -> str:
    """Where the user's own code enters: the last frame with a position."""
    positions = list(nodes(finding, "trace.position"))
    return first_text(positions[-1], ("filename + line",)) if positions else ""


STREAM = ("config.scanner_name", "config.protocol_version", "finding.osv", "osv.schema_version")
BEFORE_1 = Items(
    at="Vulns",
    ids=("OSV.id", "OSV.aliases"),
    package=("ModPath", "PkgPath"),
    fixed="OSV.affected.ranges.events.fixed",
    place="PkgPath + Symbol",
)


def _read_before_1(value: Any) -> Iterator[Finding | Unreadable]:
    """It lists a vulnerability once for each symbol that has it, and counts it once: the first."""
    seen: set[tuple[str, ...]] = set()
    for finding in BEFORE_1.read(value):
        if isinstance(finding, Unreadable) or finding.ids not in seen:
            yield finding
        if isinstance(finding, Finding):
            seen.add(finding.ids)


FORMS = (
    Form(name="govulncheck", recognises=either(*map(has, STREAM)), read=_read),
    Form(name="govulncheck before 1.0", recognises=has("Vulns", "Modules"), read=_read_before_1),
)
