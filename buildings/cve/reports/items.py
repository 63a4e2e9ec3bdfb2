"""Forms as tables: where the findings of a form stand, and which members of each say what. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from buildings.cve.reports.findings import Finding, Said, Unreadable
from buildings.cve.reports.paths import Match, Node, first_text, nodes, one_line, texts
from buildings.cve.reports.schemes import LONGEST_READ, MOST_IDS_EACH, cves_in, ids_within, own_ids

Paths = str | Match | tuple[str | Match, ...]
"""A path, or several of which the first counts that leads to a text."""


@dataclass(frozen=True)
class State:
    """A member that may say that a finding is not open: its words (in lower case, `_` for blanks and dashes) and what they mean.

    A word that is not among them is unknown; `*` stands for all others. `by` are paths to whose word it is; without one it is the
    member's own name. A flag that is false says nothing.
    """

    at: str
    words: Mapping[str, Said]
    by: Paths = ()


def words(*, open: str = "", fixed: str = "", suppressed: str = "", not_affected: str = "") -> dict[str, Said]:  # noqa: A002
    """A table for `State`, from the words of each meaning, separated by blanks."""
    table: tuple[tuple[Said, str], ...] = (("open", open), ("fixed", fixed), ("suppressed", suppressed), ("not_affected", not_affected))
    return {word: said for said, all_words in table for word in all_words.split()}


class Judged(NamedTuple):
    said: Said = "open"
    state: str = ""
    by: str = ""


@dataclass(frozen=True, kw_only=True)
class Items:
    """One kind of finding in a form, all that stand at the paths of `at`. Other paths begin at the finding.

    `ids` are read all, the tool's own first: members that hold identifiers and nothing else; a bare number gets `scheme` before it, such
    as QID-105971. Where they have no CVE, the identifiers in the texts at `named_in` are added; where there is none at all, `or_else`
    is what the tool calls the finding. `said` is what this kind is where no state says otherwise, and `by` whose word that is. What
    `counts` denies is no finding.
    """

    at: str | tuple[str, ...]
    ids: str | tuple[str, ...]
    scheme: str = ""
    named_in: str | tuple[str, ...] = ()
    or_else: Paths = ()
    said: Said = "open"
    by: str = ""
    states: tuple[State, ...] = ()
    package: Paths = ()
    version: Paths = ()
    fixed: Paths = ()
    place: Paths = ()
    severity: Paths = "severity"
    counts: Callable[[Node], bool] = lambda node: True

    def read(self, value: Any) -> Iterator[Finding | Unreadable]:
        """All of this kind in a document, or in an object of one."""
        for at in map(str, _each(self.at)):
            for place, node in enumerate(nodes(Node(value), at), start=1):
                if not isinstance(node.value, Mapping) or self.counts(node):
                    yield self.finding(node, f"{'item' if at == '.' else at} {place}")

    def finding(self, node: Node, where: str) -> Finding | Unreadable:
        named = (text for path in _each(self.ids) for text in texts(node, str(path)))
        ids = own_ids(f"{self.scheme}-{text}" if self.scheme and text.isdecimal() else text for text in named)
        if self.named_in and not any(True for each in ids for _ in cves_in(each)):
            ids |= dict.fromkeys(
                found for path in _each(self.named_in) for text in texts(node, str(path)) for found in ids_within(text[:LONGEST_READ])
            )
        ids = ids or own_ids([first_text(node, _each(self.or_else))])
        if not ids:
            return Unreadable(where, f"has no identifier in {' or '.join(map(str, _each(self.ids)))}")
        judged = judge(node, self.states, otherwise=Judged(self.said, "", self.by))
        return Finding(
            ids=tuple(ids)[:MOST_IDS_EACH],
            said=judged.said,
            state=judged.state,
            by=judged.by,
            package=first_text(node, _each(self.package)),
            version=first_text(node, _each(self.version)),
            fixed=first_text(node, _each(self.fixed)),
            place=first_text(node, _each(self.place)),
            severity=first_text(node, _each(self.severity)),
        )


def judge(node: Node, states: Iterable[State], *, otherwise: Judged = Judged()) -> Judged:  # noqa: B008 (it is immutable)
    """What the members say: the first that says that the finding is not open, else the first unknown word, else the first word."""
    said: list[Judged] = []
    for state in states:
        for word in texts(node, state.at):
            if word == "false":
                continue
            meaning = state.words.get(folded(word)) or state.words.get("*", "unknown")
            by = (first_text(node, _each(state.by)) or state.at.lstrip("^")) if meaning not in ("open", "unknown") else ""
            said.append(Judged(meaning, state.at.rpartition(".")[2] if word in ("true", "1") else one_line(word), by))
    closed = next((each for each in said if each.said not in ("open", "unknown")), None)
    unknown = next((each for each in said if each.said == "unknown"), None)
    if otherwise.said != "open":
        return closed or otherwise
    return closed or unknown or (said[0] if said else otherwise)


def folded(word: str) -> str:
    """A word of a state as the tables have it."""
    return word.strip().lower().replace(" ", "_").replace("-", "_")


def table(*kinds: Items) -> Callable[[Any], Iterator[Finding | Unreadable]]:
    """Reads a form that has several kinds of findings."""

    def read(value: Any) -> Iterator[Finding | Unreadable]:
        for kind in kinds:
            yield from kind.read(value)

    return read


def has(*paths: str) -> Callable[[Any], bool]:
    """Recognises documents that have something at each of the paths, be it empty or null."""
    return lambda value: all(_stands(Node(value), path) for path in paths)


def either(*forms: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Recognises what one of several recognises."""
    return lambda value: any(recognises(value) for recognises in forms)


def total(*paths: str) -> Callable[[Any], int | None]:
    """The sum of the numbers at the paths; None if there is none."""

    def claimed(value: Any) -> int | None:
        numbers = [int(text) for path in paths for text in texts(Node(value), path) if text.isdecimal()]
        return sum(numbers) if numbers else None

    return claimed


def _stands(root: Node, path: str) -> bool:
    parent, _, name = path.rpartition(".")
    holders = nodes(root, parent) if parent else nodes(root, ".")
    return any(isinstance(holder.value, Mapping) and name.strip("'") in holder.value for holder in holders)


def _each(paths: Paths) -> tuple[str | Match, ...]:
    return paths if isinstance(paths, tuple) else (paths,)
