"""Paths into decoded documents, such as `Results.Vulnerabilities`: with them a form of report is a table of data. Pure.

A name leads to the member of that name, of a list to that of each of its members. `{}` leads to every member of an object, `~` to
the name or the place under which a value stands, `^` at the beginning to the object that the value stands in, `.` to the value itself,
`[type=cve]` to those objects of a list whose `type` is `cve`. A name with dots or signs is written in single quotes: `'Vuln. Status'`.
` + ` joins the texts of several paths, of those that have any; ` : ` those of a host, its port and its protocol, if there is a host.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

LONGEST_TEXT = 300
NO_PORT = re.compile(r"^:(?:(?:0|general)?(?:/.*)?)$")
EACH, OWN_NAME = "{}", "~"

_STEP = re.compile(r"'([^']*)'|(\{\})|(~)|(\[[^\]]*\])|([^.'{}~\[\]]+)")


@dataclass(frozen=True, slots=True)
class Match:
    """The parts of the texts at a path that the groups of a pattern match; the pattern looks at each line."""

    path: str
    pattern: re.Pattern[str]


def match(path: str, pattern: str) -> Match:
    return Match(path, re.compile(pattern, re.IGNORECASE | re.MULTILINE))


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a document, the name under which it stands, and the object that it stands in."""

    value: Any
    name: str = ""
    within: "Node | None" = None


def nodes(start: Node, path: str) -> Iterator[Node]:
    """What stands at a path, lists by their members."""
    ups, steps = _parsed(path)
    return _descend(_up(start, ups), steps)


def texts(start: Node, path: str) -> list[str]:
    """The texts at a path, numbers and truth values as JSON writes them; of an object none, but for the text of an XML element."""
    if " + " in path:
        joined = " ".join(filter(None, (", ".join(texts(start, part)) for part in path.split(" + "))))
        return [joined[:LONGEST_TEXT]] if joined else []
    if " : " in path:
        host, port, protocol = (*(", ".join(texts(start, part)) for part in path.split(" : ")), "")[:3]
        return [host + NO_PORT.sub("", f":{port}/{protocol.lower()}".rstrip("/"))] if host else []
    ups, steps = _parsed(path)
    node = _up(start, ups)
    if not steps or steps[-1] in (OWN_NAME, EACH) or EACH in steps:
        if steps and steps[-1] == OWN_NAME:
            return [each.name for each in _descend(node, steps[:-1]) if each.name]
        return [text for each in _descend(node, steps) for text in _texts_of(each.value)]
    values: Sequence[Any] = (node.value,) if node else ()
    for name in steps:
        values = [member for value in values for member in _members(value, name)]
    return [text for value in values for text in _texts_of(value)]


def first_text(start: Node, paths: Sequence[str | Match]) -> str:
    """The texts at the first path that has any, separated by commas."""
    for path in paths:
        if found := _matched(start, path) if isinstance(path, Match) else texts(start, path):
            return one_line(", ".join(dict.fromkeys(found)))
    return ""


def one_line(text: str) -> str:
    """A text on one line, without characters that cannot be shown, cut where it is too long."""
    text = " ".join(text[: 2 * LONGEST_TEXT].split())
    return (text if text.isprintable() else "".join(filter(str.isprintable, text)))[:LONGEST_TEXT]


def _matched(start: Node, match: Match) -> list[str]:
    found = (match.pattern.search(text) for text in texts(start, match.path))
    return [part.strip() for each in found if each for part in each.groups() if part]


@lru_cache(4_096)
def _parsed(path: str) -> tuple[int, tuple[str, ...]]:
    bare = path.lstrip("^")
    return len(path) - len(bare), tuple("".join(step) for step in _STEP.findall(bare))


def _up(node: Node | None, count: int) -> Node | None:
    for _ in range(count):
        node = node and node.within
    return node


def _descend(node: Node | None, steps: Sequence[str]) -> Iterator[Node]:
    if node is None or node.value is None:
        return
    if isinstance(node.value, list):
        for place, member in enumerate(node.value):
            yield from _descend(Node(member, node.name or str(place), node.within), steps)
    elif not steps:
        yield node
    elif steps[0].startswith("["):
        if _fits(node.value, steps[0]):
            yield from _descend(node, steps[1:])
    elif isinstance(node.value, Mapping):
        members = node.value.items() if steps[0] == EACH else [(steps[0], node.value[steps[0]])] if steps[0] in node.value else []
        for name, member in members:
            yield from _descend(Node(member, name, node), steps[1:])


def _members(value: Any, name: str) -> Iterator[Any]:
    if isinstance(value, list):
        for each in value:
            yield from _members(each, name)
    elif name.startswith("["):
        if _fits(value, name):
            yield value
    elif isinstance(value, Mapping) and (member := value.get(name)) is not None:
        yield member


def _fits(value: Any, condition: str) -> bool:
    name, _, wanted = condition[1:-1].partition("=")
    return isinstance(value, Mapping) and isinstance(text := value.get(name), str) and text.lower() == wanted.lower()


def _texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if text := value.strip():
            yield text
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, int | float):
        yield str(value)
    elif isinstance(value, list):
        for each in value:
            yield from _texts_of(each)
    elif isinstance(value, Mapping):
        yield from _texts_of(value.get("#text"))
