"""Disks that are mounted read-only, or have no room: reading works, and no half file is left. Small ones are in tests/service.

Run by `make faults`, and not by `make test`.
"""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from patience import patience
from service.test_backups import SMALL, done, nothing_half_is_left
from service.test_database_faults import config_of, read_where_nothing_can_be_written
from serving import command, free_port, write_config

from tests.forkserver import CAMPUS, ForkServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's mounts")


@contextmanager
def mounted(how: str) -> Iterator[ForkServer]:
    """A server of programs that see this mount."""
    probe = subprocess.run(["unshare", "-rm", "sh", "-c", how], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"this cannot be mounted here: {probe.stderr.strip()}")
    server = ForkServer("unshare", "-rm", "sh", "-c", f'{how} && exec "$@"', "sh")
    try:
        yield server
    finally:
        server.close()


@pytest.mark.faults("disk read-only")
def test_reading_and_a_backup_work_on_a_disk_that_is_read_only(tmp_path: Path) -> None:
    config, data, backup = config_of(tmp_path, "sqlite:data"), tmp_path / "data", tmp_path / "backup.zip"
    done("key", "issue", "cve", "--note", "before", config=config)
    done("audit", config=config)
    with mounted(f"mount --bind {data} {data} && mount -o remount,ro,bind {data}") as server:

        def campus(*words: str) -> subprocess.CompletedProcess[str]:
            return server.run(CAMPUS, *words, "--config", str(config), timeout=patience(60))

        read_where_nothing_can_be_written(campus, tmp_path)
        made = campus("backup", str(backup))
    assert made.returncode == 0, made.stderr
    restored = command("restore", str(backup), "--config", str(config_of(tmp_path, "sqlite:restored")))
    assert (restored.returncode, restored.stdout) == (0, "all is well\n"), restored.stderr


@pytest.mark.faults("disk full")
def test_a_full_disk_leaves_no_half_backup_and_no_half_restore(tmp_path: Path) -> None:
    source = write_config(tmp_path, SMALL.format(url="sqlite:data"), port=free_port())
    done("audit", config=source)
    with closing(sqlite3.connect(tmp_path / "data" / "recorder.db")) as database, database:
        database.execute("CREATE TABLE filling AS SELECT randomblob(8000000)")
    done("backup", str(tmp_path / "good.zip"), config=source)
    (small := tmp_path / "small").mkdir()
    with mounted(f"mount -t tmpfs -o size=4m tmpfs {small}") as server:

        def campus(*words: str) -> subprocess.CompletedProcess[str]:
            return server.run(CAMPUS, *words, timeout=patience(60))

        def left() -> Sequence[str]:
            return server.run("import os, sys\nprint(*os.listdir(sys.argv[1]))", str(small), timeout=patience(60)).stdout.split()

        nothing_half_is_left(campus, tmp_path, small, left)
