"""campus add installs a server in an environment of its own, from its lock too, and writes its table into campus.toml."""

import hashlib
import json
import os
import pty
import shutil
import subprocess
import sys
import tomllib
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from commands import Command, command_of
from features.foreign_servers.pets_api import DOCUMENT
from patience import patience

from campus.errors import CampusError
from campus.features.foreign_servers.environments import Package

TINY = """
import json, os, sys

if not os.environ.get("TINY_TOKEN"):
    sys.exit("the variable TINY_TOKEN is not set")
TOOLS = [
    {"name": "tide", "description": "How high the tide is.", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "wave", "description": "Make a wave.", "inputSchema": {"type": "object"}},
    {"name": "ebb", "description": "The lowest water.", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
]
INFO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "tiny", "version": "1"}}


def main():
    for line in sys.stdin:
        asked = json.loads(line)
        answer = {"initialize": INFO, "tools/list": {"tools": TOOLS}, "ping": {}}.get(asked["method"])
        found = {"result": answer} if answer is not None else {"error": {"code": -32601, "message": "no such method"}}
        if "id" in asked:
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **found}), flush=True)
"""
NODE = """#!/usr/bin/env node
const tools = [{name: "tide", description: "How high the tide is.", inputSchema: {type: "object"}, annotations: {readOnlyHint: true}}];
const info = {protocolVersion: "2025-06-18", capabilities: {tools: {}}, serverInfo: {name: "tiny", version: "1"}};
const answers = {"initialize": info, "tools/list": {tools}};
require("readline").createInterface({input: process.stdin}).on("line", (line) => {
  const {id, method} = JSON.parse(line);
  const found = answers[method] ? {result: answers[method]} : {error: {code: -32601, message: "no such method"}};
  if (id !== undefined) console.log(JSON.stringify({jsonrpc: "2.0", id, ...found}));
});
"""


def write_wheel(
    folder: Path, name: str, code: str, *, version: str = "1.0", needs: str = "", needs_python: str = "", scripts: tuple[str, ...] = ()
) -> None:
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + (f"Requires-Dist: {needs}\n" if needs else "")
        + (f"Requires-Python: {needs_python}\n" if needs_python else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\n" + "".join(f"{script} = {name}:main\n" for script in scripts),
    }
    record = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in files.items()]
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": "\n".join([*record, f"{info}/RECORD,,"])}.items():
            wheel.writestr(path, text)


def _digest(text: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "tiny_mcp", TINY, scripts=("tiny-mcp", "tiny-other"))
    for name in ("PIP_NO_INDEX", "UV_NO_INDEX", "UV_OFFLINE", "UV_NO_CACHE", "npm_config_offline"):
        monkeypatch.setenv(name, "1")
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, str(wheels))
    (tmp_path / "ours").mkdir()
    monkeypatch.chdir(tmp_path / "ours")
    return command_of(capsys)


def test_a_package_gets_an_environment_a_lock_and_a_table_and_the_lock_installs_it_again(
    tmp_path: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # where no uv is: pip does it
    write_wheel(tmp_path / "wheels", "tiny_mcp", TINY, version="2.0", needs_python=">=3.99")
    assert "it may need another Python: add --python 3.99" in run("add", "tiny-mcp==2.0").err
    assert not Path("servers/tiny").exists()
    write_wheel(tmp_path / "wheels", "tiny_mcp", TINY, version="0.9", scripts=("tiny-mcp",))
    refused = run("add", "tiny-mcp==0.9")  # its lock stays for the next try of the same, and of nothing else
    assert refused.code == 2
    assert "the variable TINY_TOKEN is not set" in refused.err
    assert "add --env TINY_TOKEN" in refused.err
    monkeypatch.setenv("TINY_TOKEN", "s3cret-of-tides")
    assert 'command = "./servers/tiny/.venv/bin/tiny-mcp"' in run("add", "tiny-mcp==1.0", "--env", "TINY_TOKEN", "--dry-run").out
    assert not Path("campus.toml").exists()
    added = run("add", "tiny-mcp==1.0", "--env", "TINY_TOKEN")
    assert added.code == 0, added.err
    assert "3 tools" in added.out
    table = tomllib.loads(Path("campus.toml").read_text())["buildings"]["tiny"]
    assert table["server"] == {"command": "./servers/tiny/.venv/bin/tiny-mcp", "env": {"TINY_TOKEN": "${TINY_TOKEN}"}}
    assert table["tools"] == {"*": {"price": "0.001"}, "wave": {"price": "0.005"}}
    for written in (Path("campus.toml"), *Path("servers/tiny").glob("*.*")):
        assert written.is_dir() or "s3cret" not in written.read_text()
    assert "tiny_mcp==1.0 --hash=sha256:" in Path("servers/tiny/requirements.txt").read_text()
    assert "[buildings.tiny] is in campus.toml already" in run("add", "tiny-mcp").err
    shutil.rmtree("servers/tiny/.venv")
    (lost,) = json.loads(run("check", "--json").out)[:1]
    assert "cannot be started: No such file or directory" in lost["problem"]
    assert "`campus add --locked`" in lost["problem"]
    assert run("add", "--locked").code == 0
    assert run("check").out == "all is well\n"
    monkeypatch.delenv("TINY_TOKEN")
    assert run("check").err == "campus: buildings.tiny.server.env.TINY_TOKEN needs TINY_TOKEN: set it in the environment\n"
    assert_other_bytes_are_refused(run, tmp_path, "tiny_mcp")


def assert_other_bytes_are_refused(run: Command, tmp_path: Path, name: str) -> None:
    write_wheel(tmp_path / "wheels", name, f"{TINY}\n# other bytes of the same version", scripts=("tiny-mcp",))
    forged = run("add", "--locked")
    assert (forged.code, "hash" in forged.err.lower()) == (2, True), forged.err


def test_a_package_of_npm_is_installed_from_its_lock(tmp_path: Path, run: Command) -> None:
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    (tmp_path / "node-tiny").mkdir()
    (tmp_path / "node-tiny/package.json").write_text('{"name": "@sea/server-tides", "version": "1.0.0", "bin": "server.js"}')
    (tmp_path / "node-tiny/server.js").write_text(NODE)
    (tmp_path / "node-tiny/server.js").chmod(0o755)
    added = run("add", "../node-tiny", "--free", "--name", "tides")
    assert added.code == 0, added.err
    table = tomllib.loads(Path("campus.toml").read_text())["buildings"]["tides"]
    assert table == {"server": {"command": "./servers/tides/node_modules/.bin/server-tides"}, "tools": {"*": {"free": True}}}
    shutil.rmtree("servers/tides/node_modules")
    assert run("add", "--locked", "--name", "tides").code == 0
    assert run("check").out == "all is well\n"


def test_a_server_that_was_written_for_mcp_1_and_does_not_say_so_gets_it(tmp_path: Path, run: Command) -> None:
    if not shutil.which("uv"):
        pytest.skip("uv is not installed")
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "mcp", "fastmcp = 1\n")
    write_wheel(wheels, "mcp", "mcpserver = 2\n", version="2.0")
    old = TINY.replace("import json, os, sys", "import json, os, sys\nfrom mcp import fastmcp")
    write_wheel(wheels, "old_mcp", old.replace('os.environ.get("TINY_TOKEN")', "True"), needs="mcp", scripts=("old",))
    added = run("add", "old-mcp")
    assert added.code == 0, added.err
    assert "installing mcp 1" in added.out
    assert "\nmcp==1.0" in Path("servers/old/requirements.txt").read_text()
    assert_other_bytes_are_refused(run, tmp_path, "old_mcp")


def test_on_a_terminal_the_variables_that_a_server_names_are_asked_for(tmp_path: Path, run: Command) -> None:
    ours, its = pty.openpty()
    words = [sys.executable, "-P", "-m", "campus", "add", "tiny-mcp"]
    process = subprocess.Popen(words, stdin=its, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    assert process.stdout is not None
    out = ""
    while "the server names TINY_TOKEN; its value" not in out and (more := os.read(process.stdout.fileno(), 4096)):
        out += more.decode()
    os.write(ours, b"s3cret-of-tides\n")
    out += process.communicate(timeout=patience(120))[0].decode()
    assert process.returncode == 0, out
    assert "needs in its environment: TINY_TOKEN" in out
    assert "s3cret" not in Path("campus.toml").read_text() + out


def test_a_package_is_spelled_as_its_index_spells_it() -> None:
    spelled = {
        "wikipedia-mcp": ("wikipedia-mcp", "wikipedia", False),
        "pypi:mcp-server-time==1.2": ("mcp-server-time==1.2", "time", False),
        "tides@1.2": ("tides==1.2", "tides", False),
        "tides[sea]>=1,<2": ("tides[sea]>=1,<2", "tides", False),
        "npm:tides@1.2": ("tides@1.2", "tides", True),
        "@sea/server-tides@latest": ("@sea/server-tides@latest", "tides", True),
    }
    for text, expected in spelled.items():
        package = Package.parse(text)
        assert (package.wanted, package.short_name, package.is_npm) == expected, text
    for text in ("--index-url=x", "tides; rm", "npm:--prefix", "git+https://tides.example", "", "./nothing"):
        with pytest.raises(CampusError, match=r"no package|there is no"):
            Package.parse(text)


def test_the_table_of_an_api_is_written_with_prices(tmp_path: Path, run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("campus.toml").write_text("[buildings.gateway]\n")
    (tmp_path / "pets.json").write_text(json.dumps(DOCUMENT | {"servers": [{"url": "https://pets.example/v2"}]}))
    words = ("add", "openapi", str(tmp_path / "pets.json"), "--header", "X-Api-Key: ${PETS_KEY}")
    unset = run(*words)
    assert (unset.code, "needs PETS_KEY: set it in the environment" in unset.err) == (2, True)
    monkeypatch.setenv("PETS_KEY", "hunter2")
    answer = run(*words)
    assert answer.code == 0, answer.err
    assert "Add a pet" in answer.out
    assert run("check").code == 0
    again = run(*words)
    assert (again.code, "is in" in again.err) == (2, True)
    written = tomllib.loads(Path("campus.toml").read_text())["buildings"]["pets"]
    assert written["server"] == {"openapi": "../pets.json", "headers": {"X-Api-Key": "${PETS_KEY}"}}
    readers, writers = {"get_pet", "list_pets", "odd"}, {"add_pet", "change_pet", "remove_pet"}
    assert set(written["tools"]) == {"*", *(readers if written["tools"]["*"]["price"] == "0.005" else writers)}
    assert "hunter2" not in Path("campus.toml").read_text()
