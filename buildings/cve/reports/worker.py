"""Reads a large report in a process of its own: the document comes on its standard input, what was read leaves on its standard output.

It imports nothing of the building but the reader, so that it begins in a tenth of a second.
"""

import os
import pickle
import resource
import sys
from collections.abc import Iterator
from dataclasses import replace
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
        parts = iter((_part(refused),))
    for part in parts:
        sys.stdout.buffer.write(part)


def parts_of(report: Report) -> Iterator[bytes]:
    """A report in parts that are quick to unpickle, each after its length."""
    yield _part(replace(report, findings=(), unreadable=()))
    for members in (report.findings, report.unreadable):
        left = iter(members)
        while some := tuple(islice(left, AT_ONCE)):
            yield _part(some)


def joined(data: bytes) -> Report:
    """The report of parts. Raises the refusal that stands in its place."""
    head, *others = map(pickle.loads, _cut(data))
    if isinstance(head, ReportRefused):
        raise head
    assert isinstance(head, Report)
    members = [each for part in others for each in part]
    findings = [each for each in members if isinstance(each, Finding)]
    return replace(head, findings=findings, unreadable=members[len(findings) :])


def _part(value: object) -> bytes:
    pickled = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return len(pickled).to_bytes(8, "big") + pickled


def _cut(data: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(data):
        begin = place + 8
        place = begin + int.from_bytes(data[place:begin], "big")
        yield data[begin:place]


if __name__ == "__main__":
    main()
