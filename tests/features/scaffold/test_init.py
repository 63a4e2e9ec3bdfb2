"""campus init writes a campus.toml that works."""

import json
import re
from pathlib import Path

import pytest
from commands import Command, command_of

from campus.config import read_config

ROOT = Path(__file__).parents[3]
HELLO = """
from fastmcp import FastMCP

mcp = FastMCP("Hello")


@mcp.tool(annotations={"readOnlyHint": True})
def greet() -> str:
    "Greet."
    return "hello"
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    return command_of(capsys)


def test_init_writes_a_campus_toml_whose_comments_are_right_and_that_opens_a_file(tmp_path: Path, run: Command) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/hello.py").write_text(HELLO)
    assert run("init", "src/hello.py").code == 0
    assert {row["tool"] for row in json.loads(run("tools", "--json").out)} >= {"greet", "list_buildings"}
    assert run("check").out == "all is well\n"
    again = run("init")
    assert (again.code, "campus.toml exists already" in again.err) == (2, True)
    (tmp_path / "campus.toml").unlink()
    run("init")
    text = (tmp_path / "campus.toml").read_text()
    text = re.sub(r"^# (?=\[|\w+ = )", "", text, flags=re.MULTILINE)
    (tmp_path / "all.toml").write_text(text.replace("0x…", f"0x{'1' * 40}").replace("https://…", "https://node.example"))
    assert {"hello", "wiki", "cve", "recorder", "gateway"} == read_config(tmp_path / "all.toml", {}).buildings.keys()
