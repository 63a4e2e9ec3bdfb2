"""Where few files may be opened, campus serves fewer connections, or says at its start that they are too few."""

import socket
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from patience import patience
from serving import CAMPUS, free_port, write_config

from tests import patient
from tests.conftest import Postgres

CVE = '[buildings.cve]\nsample = true\nkev_url = "file:///nowhere"\nosv_ecosystems = []\n'
TEXT = f'[storage]\nurl = "{{storage}}"\n[buildings.gateway]\npath = "/"\n{CVE}[buildings.recorder]\n'
CALLS = 200


def limited(files: int, *words: str | Path) -> Sequence[str | Path]:
    return ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", CAMPUS, *words]


@pytest.mark.parametrize(("files", "words"), [(64, []), (128, []), (128, ["--workers", "2"])])
def test_too_few_files_end_the_start_with_a_sentence(tmp_path: Path, postgres: Postgres, files: int, words: Sequence[str]) -> None:
    config = write_config(tmp_path, TEXT.format(storage=postgres.url("postgres") if words else "sqlite:data"), port=free_port())
    ended = subprocess.run(
        limited(files, "serve", "--config", config, *words), capture_output=True, text=True, timeout=patience(60), check=False
    )
    assert ended.returncode == 2, ended.stderr
    assert f"campus: this process may open {files} files, and needs 192, or 4,256 to serve all that it can: raise" in ended.stderr
    assert not (tmp_path / "data").exists()


def test_with_few_files_fewer_connections_are_served_and_every_call_is_answered(tmp_path: Path) -> None:
    config = write_config(tmp_path, TEXT.format(storage="sqlite:data"), port=(port := free_port()))
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(limited(256, "serve", "--config", config), stderr=log) as process:
        try:
            deadline = time.monotonic() + patience(60)
            while "serving" not in (tmp_path / "log").read_text():
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            said = (tmp_path / "log").read_text()
            assert "raise the limit of open files connections=128" in said
            with ThreadPoolExecutor(16) as threads, ExitStack() as held:
                for number in range(300):  # more than one address may hold, and more than all together
                    there, here = ("127.0.0.1", port), (f"127.0.0.{number % 4 + 1}", 0)
                    idle = held.enter_context(socket.create_connection(there, timeout=patience(20), source_address=here))
                    idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    assert idle.recv(1)
                answers = list(threads.map(lambda _: patient.get(f"http://127.0.0.1:{port}/v1/brief/teaser").status_code, range(CALLS)))
            assert answers == [200] * CALLS
        finally:
            process.terminate()
            process.wait(patience(20))
    assert "Too many open files" not in (tmp_path / "log").read_text()
