"""Reads reports where they delay no other call: small ones in a thread, large ones in a process of their own, one at a time.

A document in memory is ten times its size, and the interpreter does nothing else while it is parsed, or freed.
"""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from buildings.cve.reports.documents import is_packed
from buildings.cve.reports.findings import Report, ReportRefused
from buildings.cve.reports.reader import read_report, readable
from buildings.cve.reports.worker import joined
from campus import Problem

LARGEST_TEXT = 1 << 20
"""The bytes of a request with a report as an argument; a JSON text needs a backslash before each quotation mark."""
LARGEST_REPORT = 20 * 1024 * 1024
LARGE = 256 * 1024
SECONDS = 60.0
COMMAND = (sys.executable, "-m", "buildings.cve.reports.worker")
STATUS = {"report_too_large": 413, "unreadable_report": 422}


async def read_apart(sent: bytes | str, *, readers: anyio.CapacityLimiter, always: bool = False) -> Report:
    """The report; `readers` limits how many large ones are read at once, or with `always` how many at all.

    Raises Problem 413 and 422 for one that cannot be read, 503 if those before it take too long.
    """
    data = sent if isinstance(sent, bytes) else sent.encode("utf-8", "replace")
    try:
        if not always and len(data) <= LARGE and not is_packed(data):
            return readable(await anyio.to_thread.run_sync(read_report, data))
        async with _turn(readers):
            return readable(await _in_process(data))
    except ReportRefused as refused:
        raise Problem(STATUS[refused.code], refused.code, refused.detail) from None


@asynccontextmanager
async def _turn(readers: anyio.CapacityLimiter) -> AsyncIterator[None]:
    try:
        with anyio.fail_after(SECONDS):
            await readers.acquire()
    except TimeoutError:
        detail = "large reports of others are being read; try again soon, or send a smaller one"
        raise Problem(503, "busy_with_reports", detail, headers={"Retry-After": "30"}) from None
    try:
        yield
    finally:
        readers.release()


async def _in_process(data: bytes) -> Report:
    """The process ends with the call: when its caller leaves, or the server stops, nobody else's report waits for it."""
    try:
        with anyio.fail_after(SECONDS):
            read = await anyio.run_process(COMMAND, input=data, stderr=subprocess.DEVNULL)
    except (subprocess.SubprocessError, OSError):  # of which TimeoutError is one
        detail = "reading the report takes more memory or time than there is; send it in parts, or only its identifiers in cve_ids"
        raise ReportRefused("report_too_large", detail) from None
    return await anyio.to_thread.run_sync(joined, read.stdout)
