"""`campus backup` and `campus restore`: what is restored works, what cannot be is refused, and nothing is left half done."""

import hashlib
import json
import os
import secrets
import shutil
import sqlite3
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from io import BytesIO
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import mkdtemp

import anyio
import httpx
import pytest
from fastmcp import Client
from patience import patience
from serving import Served, command, free_port, serving, write_config

from campus.features.chain import Payer, new_wallet, open_chain, open_facilitator
from tests import patient
from tests.conftest import Postgres
from tests.forkserver import CAMPUS, shared

DOLLAR = 1_000_000
SHOP = """
openapi = "recorder"
public_url = "https://campus.example"
[web]
allowed_hosts = ["localhost"]
[payments]
network = "{network}"
pay_to = "0x1111111111111111111111111111111111111111"
facilitators = ["{facilitators[0]}"]
rpc_url = "{rpc_url}"
[products.wiki]
scope = "wiki"
price = "0.50"
term = "30 days"
[buildings.wiki]
server = "./wiki.py"
tools = {{ "*" = {{ price = "0.02" }} }}
[buildings.checkout]
grants = ["keys"]
[buildings.recorder]
"""
WIKI = """
from fastmcp import FastMCP

mcp = FastMCP("Wiki")


@mcp.tool(annotations={"readOnlyHint": True})
def page() -> str:
    "A page."
    return "all of it"
"""
SMALL = '[storage]\nurl = "{url}"\n[buildings.recorder]\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A campus with data."""
    config = write_config(tmp_path, SMALL.format(url="sqlite:data"), port=free_port())
    done("key", "issue", "recorder", config=product_in(config))
    done("audit", config=config)
    return config


def product_in(config: Path) -> Path:
    with config.open("a") as file:
        file.write('[products.recorder]\nscope = "recorder"\nprice = "19"\nterm = "30 days"\n')
    return config


def done(*words: str, config: Path, environ: Mapping[str, str] | None = None) -> CompletedProcess[str]:
    """A command that succeeds."""
    answer = command(*words, "--config", str(config), environ=environ)
    assert answer.returncode == 0, answer.stderr
    return answer


def refused(*words: str, config: Path) -> str:
    answer = command(*words, "--config", str(config))
    assert answer.returncode == 2, answer
    assert "Traceback" not in answer.stderr
    return answer.stderr.splitlines()[-1]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def keys_in(config: Path) -> set[str]:
    return {row["id"] for row in json.loads(done("key", "list", "--json", config=config).stdout)}


@pytest.mark.anyio
@pytest.mark.faults("machine lost")
async def test_a_restored_key_opens_its_paid_tool_and_a_restored_monitor_goes_on(tmp_path: Path) -> None:
    payer = Payer(new_wallet())
    backup, lost = tmp_path / "campus.zip", tmp_path / "lost"
    (tmp_path / "wiki.py").write_text(WIKI)
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        await chain.mint(payer.wallet.address, 2 * DOLLAR)
        text = SHOP.format(**facilitator.table("0x" + "11" * 20))
        with serving(tmp_path, text) as served:
            key = await bought(served, payer)
            given = {"name": "agent", "alert_webhook": "https://localhost/hook"}
            async with Client(f"{served.url}/recorder/mcp") as client:
                monitor = (await client.call_tool("register_monitor", given)).structured_content
            assert monitor is not None
            beat = f"/v1/recorder/beat/{monitor['monitor_id']}/{monitor['secret']}"
            assert await beats_after(served, beat) == 1
            await anyio.to_thread.run_sync(partial(done, "backup", str(backup), config=served.config))
            later = await bought(served, payer)
        assert backup.stat().st_mode & 0o777 == 0o600
        (tmp_path / "data").rename(lost)
        told = await anyio.to_thread.run_sync(partial(done, "restore", str(backup), config=tmp_path / "campus.toml"))
        assert "all is well" in told.stdout
        assert "campus ledger reconcile" in told.stderr
        with serving(tmp_path, text) as served:
            assert await opens(served, key) == (200, "all of it")
            assert (await opens(served, later))[0] == 402
            assert await beats_after(served, beat) == 2
            reconciled = await anyio.to_thread.run_sync(partial(served.command, "ledger", "reconcile", "--json"))
    assert [row["is"] for row in json.loads(reconciled.stdout)] == ["unclaimed"], "what was paid after the backup is found on the chain"


async def bought(served: Served, payer: Payer) -> str:
    async with payer.http(served.url, timeout=patience(60)) as client:
        answer = await client.post("/v1/checkout/keys", json={"product": "wiki"}, headers={"Idempotency-Key": secrets.token_hex(16)})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["key"])


async def opens(served: Served, key: str) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {key}"}
    async with patient.AsyncClient(base_url=served.url, headers=headers) as client:
        answer = await client.get("/v1/wiki/page")
    async with Client(f"{served.url}/wiki/mcp", auth=key) as agent:
        called = await agent.call_tool("page", raise_on_error=False)
    assert called.is_error == (answer.status_code != 200)
    return answer.status_code, answer.json().get("result", "")


async def beats_after(served: Served, path: str) -> int:
    async with patient.AsyncClient(base_url=served.url) as client:
        answer = await client.post(path, json={"capsule": {"n": 1}})
    assert answer.status_code == 200, answer.text
    with closing(sqlite3.connect(served.config.parent / "data" / "recorder.db")) as database:
        return int(database.execute("SELECT beats FROM monitor WHERE id != 'mon_demo'").fetchone()[0])


def test_a_backup_is_of_one_moment_of_all_databases_while_they_are_written(tmp_path: Path, config: Path) -> None:
    files = [tmp_path / "data" / name for name in ("recorder.db", "campus.db")]
    over = threading.Event()
    for file in files:
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE count (n INTEGER PRIMARY KEY, filling BLOB)")

    def count() -> None:
        databases = [sqlite3.connect(file, isolation_level=None, timeout=20) for file in files]
        for number in range(1_000_000):
            for database in databases:
                database.execute("INSERT INTO count VALUES (?, zeroblob(2000))", (number,))
            if over.wait(0.0005):
                break
        for database in databases:
            database.close()

    counting = threading.Thread(target=count)
    counting.start()
    try:
        for number in range(3):
            done("backup", str(tmp_path / f"{number}.zip"), config=config)
    finally:
        over.set()
        counting.join()
    for number in range(3):
        restored = write_config(tmp_path, SMALL.format(url=f"sqlite:restored{number}"), port=free_port())
        done("restore", str(tmp_path / f"{number}.zip"), config=restored)
        first, second = (highest(tmp_path / f"restored{number}" / file.name) for file in files)
        assert first - second in (0, 1), (first, second)


def highest(file: Path) -> int:
    with closing(sqlite3.connect(file)) as database:
        return int(database.execute("SELECT max(n) FROM count").fetchone()[0])


def test_a_restore_keeps_what_was_there_and_only_when_it_is_told_to(tmp_path: Path, config: Path) -> None:
    backup = tmp_path / "campus.zip"
    done("backup", str(backup), config=config)
    assert refused("backup", str(backup), config=config).endswith(f"{backup} exists already; name a new file")
    before = keys_in(config)
    done("key", "issue", "recorder", config=config)
    after = keys_in(config)
    held = contents(tmp_path / "data")
    sentence = refused("restore", str(backup), config=config)
    assert f"{tmp_path / 'data'} holds campus.db" in sentence
    assert "--force" in sentence
    assert contents(tmp_path / "data") == held
    with serving(tmp_path, config.read_text().partition("\n")[2].partition("\n")[2]):
        assert "another process serves the data" in refused("restore", str(backup), "--force", config=config)
    done("restore", str(backup), "--force", config=config)
    assert keys_in(config) == before != after
    (kept,) = (tmp_path / "data").glob("before-*")
    assert keys_in(write_config(tmp_path, SMALL.format(url=f"sqlite:{kept}"), port=free_port())) == after


HOSTILE: Sequence[tuple[Callable[[dict[str, bytes]], dict[str, bytes]], str]] = (
    (lambda parts: {**parts, "../outside.db": b"x"}, "'../outside.db'"),
    (lambda parts: {**parts, "/outside.db": b"x"}, "'/outside.db'"),
    (lambda parts: {**parts, "more.db": b"x"}, "'more.db'"),
    (lambda parts: {name: data for name, data in parts.items() if name != "recorder.db"}, "recorder.db"),
    (lambda parts: {**parts, "recorder.db": parts["recorder.db"][:-1] + b"?"}, "recorder.db"),
    (lambda parts: {**parts, "recorder.db": parts["recorder.db"] + bytes(10_000_000)}, "recorder.db"),
    (lambda parts: {name: data for name, data in parts.items() if name != "manifest.json"}, "is no backup"),
    (lambda parts: {**parts, "manifest.json": b"[]"}, "is no backup"),
    (lambda parts: {**parts, "manifest.json": b" " * 10_000_000}, "is no backup"),
    (lambda parts: renamed(parts, "recorder.db", "../outside.db"), "is no backup"),
    (lambda parts: of_step(parts, "recorder", "9999"), "is at step 9999"),
)


def test_an_archive_that_is_not_as_its_manifest_says_is_refused_and_nothing_is_written(
    tmp_path: Path, config: Path, subtests: pytest.Subtests
) -> None:
    done("backup", str(tmp_path / "good.zip"), config=config)
    good = (tmp_path / "good.zip").read_bytes()
    hostile = tmp_path / "hostile.zip"
    (empty := tmp_path / "new").mkdir()
    target = write_config(empty, SMALL.format(url="sqlite:data"), port=free_port())
    bad = [(packed(change(unpacked(tmp_path / "good.zip"))), said) for change, said in HOSTILE]
    for data, said in (*bad, (b"", "is no backup"), (b"memoirs", "is no backup"), (good[:-100], "is no backup")):
        with subtests.test(said):
            hostile.write_bytes(data)
            before = contents(tmp_path)
            sentence = refused("restore", str(hostile), config=target)
            assert said in sentence
            assert str(hostile) in sentence
            assert contents(tmp_path) == before
    assert "there is no file" in refused("restore", str(tmp_path / "none.zip"), config=target)
    hostile.write_bytes(good)
    done("restore", str(hostile), config=target)


def unpacked(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(parts: Mapping[str, bytes]) -> bytes:
    with zipfile.ZipFile(file := BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return file.getvalue()


def renamed(parts: dict[str, bytes], old: str, new: str) -> dict[str, bytes]:
    parts["manifest.json"] = parts["manifest.json"].replace(old.encode(), new.encode())
    parts[new] = parts.pop(old)
    return parts


def of_step(parts: dict[str, bytes], name: str, step: str) -> dict[str, bytes]:
    (file := Path(mkdtemp()) / "part.db").write_bytes(parts[f"{name}.db"])
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = ?", (step,))
    manifest = json.loads(parts["manifest.json"])
    parts[f"{name}.db"] = data = file.read_bytes()
    file.unlink()
    manifest["parts"][f"{name}.db"] |= {"step": step, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return {**parts, "manifest.json": json.dumps(manifest).encode()}


@pytest.mark.faults("machine lost")
def test_a_restore_that_was_cut_off_is_not_served_and_can_be_made_again(tmp_path: Path, config: Path) -> None:
    """The state that a kill between two renames leaves."""
    done("backup", str(tmp_path / "campus.zip"), config=config)
    data = tmp_path / "data"
    (data / "restoring").touch()
    (data / "recorder.db").unlink()
    for words in (["serve"], ["key", "list"], ["backup", str(tmp_path / "other.zip")]):
        assert "run `campus restore` again" in refused(*words, config=config)
    done("restore", str(tmp_path / "campus.zip"), "--force", config=config)
    assert len(keys_in(config)) == 1
    assert not (data / "restoring").exists()


LIMITED = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, 4_000_000))\n{CAMPUS}"
"""The program of the `campus` command where no file can have more than 4 MB."""


@pytest.mark.faults("disk full")
def test_a_disk_without_room_leaves_no_half_backup_and_no_half_restore(tmp_path: Path, config: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "data" / "recorder.db")) as database, database:
        database.execute("CREATE TABLE filling AS SELECT randomblob(8000000)")
    done("backup", str(tmp_path / "good.zip"), config=config)
    (small := tmp_path / "small").mkdir()
    nothing_half_is_left(
        lambda *words: shared().run(LIMITED, *words, timeout=patience(60)), tmp_path, small, lambda: [each.name for each in small.iterdir()]
    )


def nothing_half_is_left(
    campus: Callable[..., CompletedProcess[str]], folder: Path, small: Path, left: Callable[[], Sequence[str]]
) -> None:
    """Neither of a restore into `small`, where there is too little room, nor of a backup."""
    target = write_config(folder, SMALL.format(url=f"sqlite:{small}"), port=free_port())
    restored = campus("restore", str(folder / "good.zip"), "--config", str(target))
    source = write_config(folder, SMALL.format(url="sqlite:data"), port=free_port())
    backed = campus("backup", str(small / "full.zip"), "--config", str(source))
    for ended in (restored, backed):
        assert ended.returncode == 2, ended
        assert any(words in ended.stderr for words in ("full", "No space left", "File too large", "disk reports an error")), ended.stderr
    assert left() == []


def test_on_postgresql_both_name_the_commands_to_run(tmp_path: Path, postgres: Postgres) -> None:
    config = write_config(tmp_path, SMALL.format(url=postgres.url("postgres")), port=free_port())
    assert "pg_dump --format=custom --file=campus.dump" in refused("backup", "campus.dump", config=config)
    assert "pg_restore --exit-on-error --single-transaction campus.dump --host=" in refused("restore", "campus.dump", config=config)


def test_check_says_when_the_backup_of_a_public_campus_is_missing_or_old(tmp_path: Path) -> None:
    text = f'public_url = "https://campus.example"\n{SMALL.format(url="sqlite:data")}'
    config = write_config(tmp_path, text, port=free_port())

    def checked() -> str:
        return command("check", "--config", str(config)).stderr

    done("audit", config=config)
    assert "note: there is no backup of" in checked()
    done("backup", str(tmp_path / "campus.zip"), config=config)
    assert "backup" not in checked()
    os.utime(tmp_path / "data" / "last-backup", (0, 0))
    assert "note: the last backup of" in checked()


@pytest.fixture
def bucket() -> Iterator[Mapping[str, str]]:
    """An S3-compatible server with an empty bucket; returns the environment that leads there."""
    port = free_port()
    code = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    environ = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1",
    }
    server = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        transport = httpx.HTTPTransport(retries=8)
        with patient.Client(transport=transport) as client:
            assert client.put(f"{environ['AWS_ENDPOINT_URL']}/vault").status_code == 200
        yield environ
    finally:
        server.kill()
        server.wait()


def test_a_backup_goes_to_an_s3_compatible_server_and_comes_back(tmp_path: Path, config: Path, bucket: Mapping[str, str]) -> None:
    before = keys_in(config)
    done("backup", "s3://vault/night/campus.zip", config=config, environ=bucket)
    again = command("backup", "s3://vault/night/campus.zip", "--config", str(config), environ=bucket)
    assert again.stderr.splitlines()[-1] == "campus: s3://vault/night/campus.zip exists already; name a new file"
    shutil.rmtree(tmp_path / "data")
    done("restore", "s3://vault/night/campus.zip", config=config, environ=bucket)
    assert keys_in(config) == before
    for url, said in (("s3://vault/none.zip", "s3://vault/none.zip"), ("s3://nowhere/campus.zip", "s3://nowhere/campus.zip")):
        answer = command("restore", url, "--force", "--config", str(config), environ=bucket)
        assert (answer.returncode, said in answer.stderr) == (2, True), answer
    assert keys_in(config) == before
