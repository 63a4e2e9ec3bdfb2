"""Reads a scanner's report: recognises its form by its content, and accounts for each of its findings. Pure."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from buildings.cve.reports import formats
from buildings.cve.reports.documents import decode
from buildings.cve.reports.findings import Document, Finding, Form, Report, ReportRefused

MOST_FINDINGS = 100_000


def read_report(sent: bytes | str) -> Report:
    """The findings of a report, whatever its form.

    Raises ReportRefused if it is too large or must not be decoded.
    """
    document = decode(sent)
    form = form_of(document)
    findings: list[Finding] = []
    unreadable = list(document.unreadable)
    for read in form.read(document.value):
        if isinstance(read, Finding):
            findings.append(read)
        else:
            unreadable.append(read)
        if len(findings) + len(unreadable) > MOST_FINDINGS:
            raise ReportRefused("report_too_large", f"the report has over {MOST_FINDINGS:,} findings; send it in parts")
    return Report(
        form=form.name,
        findings=findings,
        unreadable=unreadable,
        claimed=form.claimed(document.value),
        notes=(*document.notes, *filter(None, (form.note,))),
        is_recognised=not form.generic or document.value == [],
    )


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
