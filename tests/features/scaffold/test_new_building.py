"""What `campus new building` writes works as it is: its own tests pass, and its migration makes its tables."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from commands import command_of

from campus.config import read_config
from campus.testing import open_campus

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[3]
TESTED = [
    *(ROOT / "campus/features/scaffold/new_building").rglob("*.py"),
    ROOT / "tests/features/alerts/floods/__init__.py",
    ROOT / "tests/keys/links.py",
    ROOT / "tests/test_readme.py",
]


async def test_a_new_building_works_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "rivers"
    answer = command_of(capsys)("new", "building", "river_levels", "--folder", str(folder))
    assert answer.code == 0, answer.err
    assert f"dev {folder} " in answer.out
    assert not [path for path in folder.rglob("*") if "example" in path.name or (path.is_file() and "example" in path.read_text().lower())]
    monkeypatch.syspath_prepend(str(folder))
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed, at_least, below = re.split(">=|,<", project["project"]["dependencies"][0])
    assert (needed, at_least) == (own["name"], own["version"].rpartition(".")[0])
    assert int(below.rpartition(".")[2]) == int(at_least.rpartition(".")[2]) + 1
    assert {path.name for path in folder.iterdir()} >= {".gitignore", ".github", "README.md"}
    module, _, attribute = project["project"]["entry-points"]["campus.buildings"]["river_levels"].partition(":")
    building = getattr(import_module(module), attribute)
    assert "river_levels" in read_config(folder / "campus.toml", {}).buildings
    its_tests = import_module("test_river_levels")
    for frame in ("http", "mcp"):
        await its_tests.test_the_newest_number_is_free_and_the_others_need_a_key(frame)
    await its_tests.test_the_page_shows_the_numbers()
    async with open_campus(river_levels=building) as campus:
        assert not (await campus.service.ask("check"))["river_levels"]


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed; the types are checked by mypy in `make types`")
@pytest.mark.parametrize("mode", ["standard", "strict"])
def test_pyright_finds_nothing_in_a_new_building(mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command_of(capsys)("new", "building", "rivers", "--folder", str(tmp_path / "rivers"))
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": mode, "pythonVersion": "3.11"}))
    checked = subprocess.run(["pyright", "--pythonpath", sys.executable], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert checked.stdout.startswith("0 errors, 0 warnings"), checked.stdout


def test_a_name_or_folder_that_is_taken_is_refused_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for name, said in {
        "River-Levels": "'River-Levels' cannot name a building; use at most 48 lower-case letters",
        **{name: f"the name '{name}' is taken" for name in ("cve", "keys", "usage", "class")},
        "rivers": "exists already; name another folder with --folder",
    }.items():
        answer = command_of(capsys)("new", "building", name, "--folder", str(tmp_path))
        assert (answer.code, answer.err.startswith("campus: "), said in answer.err) == (2, True, True), name
        assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_each_line_of_python_in_the_guide_is_from_a_building_that_is_tested() -> None:
    code = [path.read_text().replace("example", "rivers") for path in TESTED]
    guides = "".join((ROOT / f"docs/{name}.md").read_text() for name in ("buildings", "pages", "alerts"))
    blocks = re.findall(r"```python\n(.*?)```", guides, re.DOTALL)
    assert blocks
    assert [block for block in blocks if not any(block in text for text in code)] == []
