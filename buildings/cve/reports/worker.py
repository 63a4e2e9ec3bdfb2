"""Reads a large report in a process of its own: the document comes on its standard input, what was read leaves on its standard output.

It imports nothing of the building but the reader, so that it begins in a tenth of a second.
"""

import os
import pickle
import resource
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path

from buildings.cve.reports.findings import Finding, Report, ReportRefused
from buildings.cve.reports.reader import read_report

MOST_MEMORY = 1_500 * 1024 * 1024
MOST_SECONDS = 60
"""Of a processor: nobody else ends this process if the server was killed."""
FIRST_TO_END = b"900"
"""Of 1,000: the kernel, when memory is short, ends this process before the server."""
AT_ONCE = 500
"""Findings that are unpickled in one go: some two milliseconds."""


def main() -> None:
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    if (adjust := Path("/proc/self/oom_score_adj")).exists():
        adjust.write_bytes(FIRST_TO_END)
    try:
        parts = parts_of(read_report(sys.stdin.buffer.read()))
    except ReportRefused as refused:
        parts = iter((refused,))
    for part in (*parts, None):
        pickle.dump(part, sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)


def parts_of(report: Report) -> Iterator[object]:
    """A report in parts that are quick to unpickle."""
    yield replace(report, findings=(), unreadable=())
    for members in (report.findings, report.unreadable):
        left = iter(members)
        while some := tuple(islice(left, AT_ONCE)):
            yield some


def joined(data: bytes) -> Report:
    """The report of the parts until None. Raises the refusal that stands in their place."""
    head, *others = iter(partial(pickle.load, BytesIO(data)), None)
    if isinstance(head, ReportRefused):
        raise head
    assert isinstance(head, Report)
    members = [each for part in others for each in part]
    findings = [each for each in members if isinstance(each, Finding)]
    return replace(head, findings=findings, unreadable=members[len(findings) :])


if __name__ == "__main__":
    main()
