"""The duration of fsync on this disk, and a slow disk for child processes, made by a preloaded library."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter

PAGE = 4096
SYNCS = 200
SLOW_MILLISECONDS = 1
SLOW = f"""
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const struct timespec a_while = {{0, {SLOW_MILLISECONDS} * 1000000}};

int fsync(int file) {{ nanosleep(&a_while, 0); return syscall(SYS_fsync, file); }}
int fdatasync(int file) {{ nanosleep(&a_while, 0); return syscall(SYS_fdatasync, file); }}
"""


def sync_seconds(folder: Path) -> list[float]:
    """Seconds that syncs of an overwritten page take, as in SQLite's write-ahead log."""
    file = os.open(folder / "sync", os.O_CREAT | os.O_RDWR)
    try:
        os.write(file, bytes(PAGE * SYNCS))
        os.fsync(file)
        return [_synced(file, number) for number in range(SYNCS)]
    finally:
        os.close(file)


def _synced(file: int, number: int) -> float:
    os.pwrite(file, os.urandom(PAGE), number * PAGE)
    began = perf_counter()
    os.fdatasync(file)
    return perf_counter() - began


def slow_disk(folder: Path) -> Mapping[str, str] | None:
    """The environment in which every sync of a process takes SLOW_MILLISECONDS longer; None without a C compiler.

    Disks of virtual machines often sync into their host's memory only, which costs nothing and is not durable.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "slow_sync.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-x", "c", "-", "-o", library], input=SLOW.encode(), check=True)
    return {"LD_PRELOAD": str(library)}
