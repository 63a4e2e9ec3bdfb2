"""Measures cve.refresh without the start of the process: `refresh_alone CONFIG DAY` prints its CPU and memory as JSON."""

import json
import re
import sys
from datetime import date
from pathlib import Path
from time import process_time

import anyio

from campus.app import assemble
from campus.config import read_config


async def refresh(config: Path, day: date) -> dict[str, float]:
    """CPU seconds of the refresh, and the process's peak memory in MB."""
    async with assemble(read_config(config), exclusive=False) as campus:
        began = process_time()
        await campus.run_job("cve.refresh", day=day)
        return {"cpu": process_time() - began, "peak": peak()}


def peak() -> float:
    """The peak of this process's resident memory; getrusage also counts that of the process that started it."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None, "Linux has it"
    return int(found[1]) / 1000


if __name__ == "__main__":
    print(json.dumps(anyio.run(refresh, Path(sys.argv[1]), date.fromisoformat(sys.argv[2]))))
