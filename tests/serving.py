"""Starts `campus serve` and other commands as separate processes, for tests and benchmarks."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import randbelow
from typing import IO

import httpx

from tests import forkserver, patient
from tests.forkserver import Forked
from tests.patience import patience

CAMPUS = Path(sys.executable).parent / "campus"
READY_SECONDS = 30


@dataclass(frozen=True)
class Served:
    """A campus that is being served."""

    url: str
    config: Path
    process: Forked | subprocess.Popen[bytes]
    words: Sequence[str]
    """The arguments of the process, after `campus`."""
    environ: Mapping[str, str]
    admin: str
    """The operator's listener."""
    fresh: bool = False
    """True if it and its commands are started as the installed command, not forked."""

    @property
    def log(self) -> str:
        """The log so far."""
        return self.config.with_suffix(".log").read_text()

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return command(*words, "--config", str(self.config), environ=self.environ, fresh=self.fresh)

    def key(self, product: str) -> str:
        answer = self.command("key", "issue", product, "--json")
        assert answer.returncode == 0, answer.stderr
        return str(json.loads(answer.stdout)[0]["key"])


def command(*words: str, environ: Mapping[str, str] | None = None, fresh: bool = False) -> subprocess.CompletedProcess[str]:
    if fresh:
        environ = {**os.environ, **(environ or {})}
        return subprocess.run([CAMPUS, *words], capture_output=True, text=True, timeout=patience(60), check=False, env=environ)
    return forkserver.shared().run(forkserver.CAMPUS, *words, environ=environ, timeout=patience(60))


def free_port() -> int:
    while True:
        port = 15_000 + randbelow(17_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def write_config(folder: Path, text: str, *, port: int) -> Path:
    path = folder / "campus.toml"
    path.write_text(f"[server]\nport = {port}\n{text}")
    return path


@contextmanager
def serving(
    folder: Path,
    text: str,
    *,
    environ: Mapping[str, str] | None = None,
    words: Sequence[str] = (),
    host: str = "127.0.0.1",
    admin: str | None = None,
    fresh: bool = False,
    job_niceness: int = 0,
) -> Iterator[Served]:
    """Serve a campus until the block ends, then stop it with SIGTERM.

    `host` is its host as in a URL; `admin` the operator's listener, on a free port by default; jobs give way to nothing, because
    tests wait for them.
    `fresh` starts the installed command, which takes two seconds; otherwise a process that has imported campus is forked.
    """
    port, admin = free_port(), admin or f"127.0.0.1:{free_port()}"
    config = write_config(folder, f"job_niceness = {job_niceness}\n{text}", port=port)
    given = {"PYTHONPATH": "", **(environ or {})}
    with config.with_suffix(".log").open("wb") as log:
        words = ["serve", "--config", str(config), "--admin", admin, *words]
        process = start(words, given, log, fresh=fresh, imports=forkserver.PAYMENTS if "[payments]" in text else ())
    served = Served(f"http://{host}:{port}", config, process, words, given, f"http://{admin}", fresh)
    try:
        wait_until_it_answers(served)
        yield served
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(patience(20))


def start(
    words: Sequence[str], environ: Mapping[str, str], log: IO[bytes] | None = None, *, imports: Sequence[str] = (), fresh: bool = False
) -> Forked | subprocess.Popen[bytes]:
    if fresh:
        return subprocess.Popen([CAMPUS, *words], stderr=log, env={**os.environ, **environ})
    return forkserver.shared().start(forkserver.CAMPUS, *words, environ=environ, imports=imports, stderr=log)


def wait_until_it_answers(served: Served) -> None:
    deadline = time.monotonic() + patience(READY_SECONDS)
    with patient.Client(base_url=served.url) as client:  # made once, since it takes 20 ms
        while time.monotonic() < deadline:
            assert served.process.poll() is None, served.log
            try:
                client.get("/healthz")
            except httpx.TransportError:
                time.sleep(0.05)
            else:
                return
    raise AssertionError(f"not ready in time: {served.log}")
