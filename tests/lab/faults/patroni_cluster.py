"""Three PostgreSQL servers under Patroni with etcd, and a HAProxy before them: a primary, a synchronous standby, and another one.

Skips the test where Debian's patroni, etcd-server, haproxy and postgresql are not installed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import patient
from tests.patience import patience
from tests.postgres_server import dying_with_parent, unprivileged
from tests.serving import free_port

NAMES = ("a", "b", "c")
READY_SECONDS = 90
ROLES = ("leader", "sync_standby", "replica")
WORKING = ("running", "streaming")
DCS = {
    "ttl": 20,
    "loop_wait": 2,
    "retry_timeout": 6,
    "primary_start_timeout": 0,
    "synchronous_mode": True,
    "postgresql": {"use_pg_rewind": True, "use_slots": True},
}
"""Patroni's settings for all nodes. A primary that crashed is left at once, one whose Patroni is silent after `ttl`, its smallest."""
INITDB = [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}, "data-checksums"]
HAPROXY = """
defaults
  mode tcp
  timeout connect 2s
  timeout client 1h
  timeout server 1h
  timeout check 2s
listen primary
  bind 127.0.0.1:{port}
  option httpchk OPTIONS /primary
  http-check expect status 200
  default-server inter 1s fall 3 rise 1 on-marked-down shutdown-sessions
{servers}
"""


@dataclass
class Node:
    """One PostgreSQL server with its Patroni."""

    name: str
    folder: Path
    etcd: str
    port: int
    api: int
    patroni: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        config = self.folder / f"{self.name}.yml"
        config.write_text(json.dumps(self._config()))  # JSON is YAML
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": str(self.folder)}
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.patroni = subprocess.Popen(
                [shutil.which("patroni") or "", config],
                stdout=log,
                stderr=log,
                env=environment,
                preexec_fn=dying_with_parent(signal.SIGTERM),
                **unprivileged(),
            )

    def processes(self, *, with_patroni: bool = True) -> Sequence[int]:
        found = [self.patroni.pid] if with_patroni and self.patroni else []
        with suppress(FileNotFoundError):
            server = int((self.folder / self.name / "postmaster.pid").read_text().splitlines()[0])
            with suppress(FileNotFoundError):
                found += [server, *map(int, Path(f"/proc/{server}/task/{server}/children").read_text().split())]
        return found

    def send(self, number: signal.Signals, *, with_patroni: bool = True) -> None:
        for process in self.processes(with_patroni=with_patroni):
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def stop(self) -> None:
        self.send(signal.SIGKILL)
        if self.patroni:
            self.patroni.wait()

    def _config(self) -> Mapping[str, Any]:
        server, api = f"127.0.0.1:{self.port}", f"127.0.0.1:{self.api}"
        users = {"superuser": "postgres", "replication": "replicator", "rewind": "rewinder"}
        return {
            "scope": "campus",
            "name": self.name,
            "etcd": {"host": self.etcd},  # not etcd3, where Patroni 3.0 never sees what changed while it was stopped
            "restapi": {"listen": api, "connect_address": api},
            "bootstrap": {"dcs": DCS, "initdb": INITDB},
            "postgresql": {
                "listen": server,
                "connect_address": server,
                "data_dir": str(self.folder / self.name),
                "bin_dir": str(_postgresql()),
                "pgpass": str(self.folder / f"{self.name}.pgpass"),
                "authentication": {key: {"username": user, "password": "x"} for key, user in users.items()},
                "pg_hba": ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
                "parameters": {"unix_socket_directories": str(self.folder), "shared_buffers": "32MB", "max_connections": 200},
            },
        }


@dataclass
class Cluster:
    """The nodes, and the port on which HAProxy leads to the primary."""

    nodes: Mapping[str, Node]
    haproxy: int
    folder: Path
    """Readable by the user that the programs run as."""

    def roles(self) -> Mapping[str, str]:
        for node in self.nodes.values():
            with suppress(httpx.TransportError):
                members = patient.get(f"http://127.0.0.1:{node.api}/cluster", timeout=1).json()["members"]
                newest = max(member.get("timeline", 0) for member in members)
                return {one["name"]: one["role"] for one in members if one.get("timeline") == newest and one["state"] in WORKING}
        return {}

    def is_whole(self) -> bool:
        return sorted(self.roles().values()) == sorted(ROLES)

    def primary(self) -> Node:
        deadline = time.monotonic() + patience(READY_SECONDS)
        while not self.is_whole():
            assert time.monotonic() < deadline, (self.roles(), *self.logs())
            time.sleep(0.2)
        return next(self.nodes[name] for name, role in self.roles().items() if role == "leader")

    def create_database(self, name: str) -> None:
        command = [_postgresql() / "createdb", "-h", "127.0.0.1", "-p", str(self.primary().port), "-U", "postgres", name]
        subprocess.run(command, check=True)

    def logs(self) -> Sequence[str]:
        return [(node.folder / f"{name}.log").read_text()[-3000:] for name, node in self.nodes.items()]


@contextmanager
def patroni_cluster(folder: Path) -> Iterator[Cluster]:
    if missing := [name for name in ("patroni", "etcd", "haproxy") if shutil.which(name) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if sys.platform != "linux" or not _postgresql().is_dir():
        pytest.skip("Debian's postgresql is not installed")
    os.chmod(folder, 0o755)
    data = folder / "nodes"
    data.mkdir()
    if identity := unprivileged():
        os.chown(data, identity["user"], identity["group"])
    with ExitStack() as stack:
        etcd = stack.enter_context(_etcd(data))
        nodes = {name: Node(name, data, etcd, free_port(), free_port()) for name in NAMES}
        cluster = Cluster(nodes, stack.enter_context(_haproxy(data, nodes.values())), folder)
        for node in nodes.values():
            stack.callback(node.stop)
            node.start()
        cluster.primary()
        yield cluster


def _postgresql() -> Path:
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/nowhere"))


@contextmanager
def _etcd(folder: Path) -> Iterator[str]:
    address, peers = f"127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    urls = {"listen-client-urls": f"http://{address}", "advertise-client-urls": f"http://{address}", "listen-peer-urls": peers}
    options = {"data-dir": folder / "etcd", "initial-cluster": f"default={peers}", "initial-advertise-peer-urls": peers, **urls}
    with _program(folder, "etcd", "--enable-v2", "--unsafe-no-fsync", *(f"--{key}={value}" for key, value in options.items())):
        yield address


@contextmanager
def _haproxy(folder: Path, nodes: Iterator[Node] | Any) -> Iterator[int]:
    port, config = free_port(), folder / "haproxy.cfg"
    servers = "\n".join(f"  server {node.name} 127.0.0.1:{node.port} check port {node.api}" for node in nodes)
    config.write_text(HAPROXY.format(port=port, servers=servers))
    with _program(folder, "haproxy", "-f", str(config)):
        yield port


@contextmanager
def _program(folder: Path, name: str, *words: str) -> Iterator[None]:
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([name, *words], stdout=log, stderr=log, preexec_fn=dying_with_parent(signal.SIGTERM), **unprivileged())
    try:
        yield
    finally:
        process.kill()
        process.wait()
