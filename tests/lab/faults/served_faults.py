"""Faults from outside of a campus that is served: thousands of connections that ask nothing, and a PostgreSQL that is stopped.

Run by `make faults`, and not by `make test`.
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from conftest import Postgres, running
from patience import patience
from serving import serving

from tests import patient

CONFIG = """
openapi = "recorder"
[storage]
url = "{storage}"
[web]
allowed_hosts = ["localhost"]
[buildings.recorder]
"""
IDLE, ADDRESSES, CALLS = 4_000, 200, 200
STOPPED_SECONDS = 8.0


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A server that no other test uses."""
    with TemporaryDirectory(prefix="campus-pg-", dir="/tmp") as root, running(Path(root)) as postgres:  # a socket's path is short
        yield postgres


@pytest.mark.faults("connections")
def test_other_callers_are_answered_beside_thousands_of_idle_connections(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with serving(tmp_path, CONFIG.format(storage="sqlite:data")) as campus, ExitStack() as crowd:
        port = int(campus.url.rpartition(":")[2])
        for number in range(IDLE):
            address = f"127.0.1.{number % ADDRESSES + 1}"
            crowd.enter_context(socket.create_connection(("127.0.0.1", port), patience(20), source_address=(address, 0)))
        took = []
        for number in range(CALLS):
            transport = httpx.HTTPTransport(local_address=f"127.0.2.{number % ADDRESSES + 1}")
            with patient.Client(transport=transport) as client:
                began = time.perf_counter()
                assert client.get(f"{campus.url}/healthz").status_code == 200
                took.append(time.perf_counter() - began)
    record_property("figures", f"{CALLS} of {CALLS} calls answered, the slowest in {max(took) * 1000:.0f} ms")


@pytest.mark.faults("database stopped")
def test_beats_are_refused_in_time_while_postgresql_is_stopped_and_taken_afterwards(
    tmp_path: Path, own_postgres: Postgres, record_property: Callable[[str, object], None]
) -> None:
    server = int((own_postgres.sockets / "db" / "postmaster.pid").read_text().splitlines()[0])
    url = own_postgres.url(own_postgres.create_database())
    with serving(tmp_path, CONFIG.format(storage=url)) as campus, patient.Client(base_url=campus.url, timeout=patience(60)) as client:
        monitor = client.post("/v1/recorder/monitors", json={"name": "agent", "alert_webhook": "https://localhost/hook"}).json()
        path = f"/v1/recorder/beat/{monitor['monitor_id']}/{monitor['secret']}"
        assert client.post(path, json={}).status_code == 200
        processes = [server, *children_of(server)]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            began = time.perf_counter()
            statuses = []
            while time.perf_counter() - began < STOPPED_SECONDS:
                statuses.append(client.post(path, json={}).status_code)
            refused = time.perf_counter() - began
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)
        assert set(statuses) == {503}
        began = time.perf_counter()
        while (status := client.post(path, json={}).status_code) != 200:
            assert status == 503
            assert time.perf_counter() - began < patience(60)
        back = time.perf_counter() - began
    record_property("figures", f"{len(statuses)} beats refused with 503 in {refused:.1f} s; taken {back:.1f} s after the server went on")


def children_of(process: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
