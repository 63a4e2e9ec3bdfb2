"""Reads a scanner's report: recognises its form by its content, and accounts for each of its findings. Pure."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from time import thread_time
from typing import Any

from buildings.cve.reports import formats
from buildings.cve.reports.documents import decode
from buildings.cve.reports.findings import Document, Finding, Form, Report, ReportRefused
from buildings.cve.reports.paths import Node, first_text, nodes, one_line, texts

MOST_FINDINGS = 100_000
ERRORS = ("error", "errors", "errorMessage", "error_message", "[type=error].data")
MESSAGES = ("summary", "message", "detail", "title")
MOST_COMPLAINTS = 10
SECONDS, SECONDS_EACH = 5.0, 2e-6
"""Of a processor, and for each character of the document: real ones take a quarter of it."""
MOST_CHARACTERS = 30_000_000
REPEATED, FREELY = 10, 1_000_000
"""How often findings may repeat a document's characters, beyond so many: a rule is told with each of its results, real ones thrice."""


def read_report(sent: bytes | str) -> Report:
    """The findings of a report, whatever its form.

    Raises ReportRefused if it is too large or must not be decoded.
    """
    document = decode(sent)
    form = form_of(document)
    findings: list[Finding] = []
    unreadable = list(document.unreadable)
    end = thread_time() + SECONDS + document.size * SECONDS_EACH
    left = min(REPEATED * document.size + FREELY, MOST_CHARACTERS)
    for read in form.read(document.value):
        if isinstance(read, Finding):
            findings.append(read)
            left -= read.size
        else:
            unreadable.append(read)
        if thread_time() > end:
            raise ReportRefused("report_too_large", "reading it takes too long for its size; send it in parts, or only its identifiers")
        if left < 0:
            raise ReportRefused("report_too_large", "what the report says once belongs to too many of its findings; send it in parts")
        if len(findings) + len(unreadable) > MOST_FINDINGS:
            raise ReportRefused("report_too_large", f"the report has over {MOST_FINDINGS:,} findings; send it in parts")
    return Report(
        form=form.name,
        findings=findings,
        unreadable=unreadable,
        claimed=form.claimed(document.value),
        notes=(*document.notes, *filter(None, (form.note,)), *_complaints(document.value)),
        is_recognised=not form.generic or document.value == [],
    )


def _complaints(value: Any) -> tuple[str, ...]:
    """What the tool itself says is missing from its scan, so that a short report does not look like a clean one."""
    root = Node(value)
    said = dict.fromkeys(filter(None, (_message(error) for path in ERRORS for error in nodes(root, path))))
    notes = [f"The tool reports an error, so that findings may be missing: {text}" for text in said]
    passed_over = len(texts(root, "dependencies.skip_reason"))
    notes += [f"The tool passed over {passed_over:,} dependencies, of which nothing is known."] if passed_over else []
    return tuple(notes[:MOST_COMPLAINTS])


def _message(error: Node) -> str:
    if isinstance(error.value, dict):
        return first_text(error, MESSAGES) or "without a message"
    return one_line(error.value) if isinstance(error.value, str) else ""


def readable(report: Report) -> Report:
    """The report, if any of it can be read. One of no known form in which nothing was found says nothing: it is refused.

    Raises ReportRefused.
    """
    if report.findings or (report.is_recognised and not report.unreadable):
        return report
    if report.unreadable:
        first = report.unreadable[0]
        raise ReportRefused("unreadable_report", f"none of the report's findings can be read: {first.where}: {first.why}")
    detail = "this is no known form of report, and it contains no identifier of a vulnerability; send the tool's JSON, XML or CSV"
    raise ReportRefused("unreadable_report", detail)


def form_of(document: Document) -> Form:
    """The form that recognises a document; the generic one of its syntax where none does."""
    return next(form for form in all_forms() if form.syntax == document.syntax and form.recognises(document.value))


@cache
def all_forms() -> tuple[Form, ...]:
    """The forms of all modules in `formats`, each of which lists its own as FORMS; generic ones last."""
    return tuple(sorted(_forms(), key=lambda form: form.generic))


def _forms() -> Iterator[Form]:
    for module in iter_modules(formats.__path__):
        yield from import_module(f"{formats.__name__}.{module.name}").FORMS
