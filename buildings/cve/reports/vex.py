"""Statements on vulnerabilities (VEX): which of several counts, and what package a package URL names. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote

from buildings.cve.reports.findings import Finding

DISTRIBUTIONS = ("apk", "deb", "rpm", "alpm")
"""Package URLs whose namespace is the distribution, and no part of the package's name."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What an author said of a vulnerability in a product, and when; `about` tells products apart."""

    finding: Finding
    about: str
    author: str
    at: str = ""


def latest(statements: Iterable[Statement]) -> Iterator[Finding]:
    """The last statement of each author on each vulnerability in each product; without a time the later in the document is the last."""
    last: dict[tuple[str, str, str], tuple[datetime, Finding]] = {}
    for statement in statements:
        key = (statement.author, statement.finding.ids[0].upper(), statement.about)
        at = moment_of(statement.at)
        if key not in last or at >= last[key][0]:
            last[key] = (at, statement.finding)
    yield from (finding for _, finding in last.values())


def moment_of(text: str) -> datetime:
    """A time in a report; the earliest there is if it is none."""
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)


def package_of(purl: str) -> tuple[str, str]:
    """The package that a package URL names, as its ecosystem writes it, and its version; what is no package URL is the name itself."""
    if not purl.startswith("pkg:"):
        return purl, ""
    kind, _, path = purl.removeprefix("pkg:").partition("#")[0].partition("?")[0].partition("/")
    namespace, _, name = path.strip("/").rpartition("/")
    name, _, version = name.partition("@")
    joined = name if not namespace or kind in DISTRIBUTIONS else f"{namespace}:{name}" if kind == "maven" else f"{namespace}/{name}"
    return unquote(joined), unquote(version)
