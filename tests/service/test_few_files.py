"""Where few files may be opened, campus serves fewer connections, or says at its start that they are too few."""

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from patience import patience
from serving import Served, free_port, wait_until_it_answers, write_config

from tests import patient
from tests.conftest import Postgres
from tests.forkserver import CAMPUS, shared

CVE = '[buildings.cve]\nsample = true\nkev_url = "file:///nowhere"\nosv_ecosystems = []\n'
TEXT = f'[storage]\nurl = "{{storage}}"\n[buildings.gateway]\npath = "/"\n{CVE}[buildings.recorder]\n'
CALLS = 100
ALONE = {"Connection": "close"}  # each call comes over a connection of its own

LIMITED = f"import resource, sys\nfiles = int(sys.argv.pop(1))\nresource.setrlimit(resource.RLIMIT_NOFILE, (files, files))\n{CAMPUS}"
"""The program of the `campus` command, whose first argument is how many files it may open."""


def test_too_few_files_end_the_start_with_a_sentence(tmp_path: Path, postgres: Postgres) -> None:
    for files, storage, words in ((64, "sqlite:data", []), (128, postgres.url("postgres"), ["--workers", "2"])):
        config = write_config(tmp_path, TEXT.format(storage=storage), port=free_port())
        ended = shared().run(LIMITED, str(files), "serve", "--config", str(config), *words, timeout=patience(60))
        assert ended.returncode == 2, ended.stderr
        assert f"campus: this process may open {files} files, and needs 192, or 4,256 to serve all that it can: raise" in ended.stderr
        assert not (tmp_path / "data").exists()


def test_with_few_files_fewer_connections_are_served_and_every_call_is_answered(tmp_path: Path) -> None:
    config = write_config(tmp_path, TEXT.format(storage="sqlite:data"), port=(port := free_port()))
    with (tmp_path / "campus.log").open("wb") as log:
        process = shared().start(LIMITED, "256", "serve", "--config", str(config), stderr=log)
    campus = Served(f"http://127.0.0.1:{port}", tmp_path / "campus.toml", process, (), {}, "")
    with process:
        wait_until_it_answers(campus)
        assert "raise the limit of open files connections=128" in campus.log
        with ThreadPoolExecutor(16) as threads, ExitStack() as held, patient.Client(base_url=campus.url) as client:
            for number in range(300):  # more than one address may hold, and more than all together
                there, here = ("127.0.0.1", port), (f"127.0.0.{number % 4 + 1}", 0)
                idle = held.enter_context(socket.create_connection(there, timeout=patience(20), source_address=here))
                idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert idle.recv(1)
            answers = list(threads.map(lambda _: client.get("/v1/brief/teaser", headers=ALONE).status_code, range(CALLS)))
        assert answers == [200] * CALLS
    assert "Too many open files" not in campus.log
