"""Reads reports where they delay no other call: small ones in a thread, large ones in a process of their own."""

import anyio.to_thread

from buildings.cve.reports.findings import Report
from buildings.cve.reports.reader import read_report

LARGEST_TEXT = 1 << 20
"""The bytes of a request with a report as an argument; a JSON text needs a backslash before each quotation mark."""


async def read_apart(sent: bytes | str) -> Report:
    return await anyio.to_thread.run_sync(read_report, sent)
