"""A PgBouncer in transaction mode before a test's PostgreSQL server: each transaction gets another of its two connections."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import patience
from tests.postgres_server import unprivileged
from tests.serving import free_port

CONFIG = """
[databases]
* = {server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users.txt
pool_mode = transaction
default_pool_size = {servers}
server_round_robin = 1
server_login_retry = 1
ignore_startup_parameters = {ignored}
"""
START_SECONDS = 20


@contextmanager
def pgbouncer(folder: Path, server: str, *, servers: int = 2, ignored: str = "extra_float_digits") -> Iterator[int]:
    if (program := shutil.which("pgbouncer")) is None:
        pytest.skip("pgbouncer is not installed")
    port = free_port()
    config = folder / "pgbouncer.ini"
    (folder / "users.txt").write_text('"postgres" ""\n')
    config.write_text(CONFIG.format(server=server, port=port, folder=folder, servers=servers, ignored=ignored))
    with (folder / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen([program, config], stdout=log, stderr=log, **unprivileged())
    try:
        deadline = time.monotonic() + patience(START_SECONDS)
        while True:
            assert process.poll() is None, (folder / "pgbouncer.log").read_text()
            assert time.monotonic() < deadline, (folder / "pgbouncer.log").read_text()
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()
