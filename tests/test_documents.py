"""docs/ is complete and works: each page is found, leads on, and does what it says; what the code offers has its entry."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest
import reference
from patience import patience
from walkthrough import reading

ROOT = Path(__file__).parents[1]
DOCS = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_that_follows_from_the_code_is_as_the_code_says(name: str) -> None:
    assert DOCS[name] == reference.page(name), "run `make reference`, and commit the page"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel of the repository, to which the dependencies that are installed here are added."""
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, ROOT]
    subprocess.run(build, check=True, timeout=patience(100))
    venv.create(home := folder / "venv", with_pip=False)
    install = [sys.executable, "-m", "pip", "-q", "--python", home / "bin/python", "install", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*install, next(folder.glob("*.whl"))], check=True, timeout=patience(100))
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # its own .pth files, such as campus's, are not read
    return home


@pytest.fixture
def environ(home: Path, tmp_path: Path) -> Mapping[str, str]:
    """The environment of a reader who has installed campus."""
    path = f"{home / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE") and "CAMPUS" not in name}
    return {**kept, "PATH": path, "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}


@pytest.fixture
def installed(home: Path) -> Mapping[str, str]:
    """What is run in place of the commands that load packages, which this machine has."""
    offline = f"{sys.executable} -m pip -q --python {home}/bin/python install --no-index --no-build-isolation --no-deps --no-compile"
    return {
        "python3 -m venv": "true",
        ". .venv": "true",
        'python -m pip install --quiet "mcp-campus': "campus --version",
        "python -m pip install --quiet pytest": "true",
        "python -m pip install --quiet --no-deps -e campus-rivers": f"{offline} -e campus-rivers",
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["tutorial.md"])
def test_a_reader_who_follows_a_page_gets_what_it_shows(
    name: str, tmp_path: Path, environ: Mapping[str, str], installed: Mapping[str, str]
) -> None:
    (folder := tmp_path / "empty").mkdir()
    with reading(folder, environ, installed) as reader:
        reader.follow(DOCS[name])
    assert reader.commands
