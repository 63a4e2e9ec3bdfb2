"""A scanner's report as it was read: its findings, each with what the tool says of it. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Said = Literal["open", "fixed", "suppressed", "not_affected", "unknown"]
"""What a report says of a finding; unknown is a word that no list of ours knows."""


class ReportRefused(Exception):
    """A report is too large, must not be decoded or cannot be read at all; `code` is that of the problem which the caller receives."""

    def __init__(self, code: Literal["report_too_large", "unreadable_report"], detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


Syntax = Literal["json", "xml", "csv", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding, as the tool counts them: one vulnerability in one package at one place, or whatever the tool calls one.

    `ids` are all that it names itself by, the tool's own first, CVEs in upper case; ids that it only refers to are not among them.
    `state` is the tool's own word where it gave one, `by` whose word it is that the finding is not open: a person, a rule, a statement.
    What the report does not say is empty.
    """

    ids: tuple[str, ...]
    said: Said = "open"
    state: str = ""
    by: str = ""
    package: str = ""
    version: str = ""
    fixed: str = ""
    place: str = ""
    severity: str = ""

    @property
    def size(self) -> int:
        """The number of characters in its texts."""
        texts = (self.state, self.by, self.package, self.version, self.fixed, self.place, self.severity)
        return sum(map(len, self.ids)) + sum(map(len, texts))


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A part of a report that should have been a finding and cannot be read: where it stands, and what is wrong with it."""

    where: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """A document as read: the form's name, its findings, what of it cannot be read, and the number that the tool itself reports, if any.

    `notes` are sentences on how it was read, such as that no form was recognised and it was read as plain text. `is_recognised` is
    false if only its syntax is known: that it has no findings says nothing then.
    """

    form: str
    findings: Sequence[Finding]
    unreadable: Sequence[Unreadable] = ()
    claimed: int | None = None
    notes: Sequence[str] = ()
    is_recognised: bool = True


@dataclass(frozen=True, slots=True)
class Document:
    """What was sent, decoded: of JSON the value (of a stream of values or of lines the list of them), of CSV the list of its rows by the
    names in its head without spaces, signs and capital letters, of XML its root as `{name: element}`, of anything else the text.

    An XML element is a text if it has nothing else, otherwise an object: its attributes as `@name`, its children as lists by their
    names without namespace, its text as `#text`. `notes` say what a reader should know of the decoding, `unreadable` what of it
    was passed over; `size` is the number of its characters.
    """

    syntax: Syntax
    value: Any
    notes: Sequence[str] = ()
    unreadable: Sequence[Unreadable] = ()
    size: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True)
class Form:
    """One form of report: how its content is recognised, how its findings are read, and how many the tool itself says there are.

    All take the value of the decoded document. `read` is mostly that of an `Items`, or `table(…)` of several. A `generic` form is asked
    after all others; `note` is added to the notes of each report that it reads.
    """

    name: str
    syntax: Syntax = "json"
    recognises: Callable[[Any], bool]
    read: Callable[[Any], Iterator[Finding | Unreadable]]
    claimed: Callable[[Any], int | None] = lambda value: None
    generic: bool = False
    note: str = ""
