"""The pages of docs/ that a reader can follow do what they show, with the wheel: `make conformance` begins with them.

The tutorial is in `make test`, with the campus of the checkout.
"""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest
from patience import patience
from walkthrough import ROOT, Reader, add_packages, reader  # noqa: F401  # a fixture


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel of the repository, to which the dependencies that are installed here are added."""
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, ROOT]
    subprocess.run(build, check=True, timeout=patience(100))
    venv.create(home := folder / "venv", with_pip=False)
    install = [sys.executable, "-m", "pip", "-q", "--python", home / "bin/python", "install", "--no-deps", "--no-index", "--no-compile"]
    (wheel,) = folder.glob("mcp_campus-*.whl")
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"twins", "campus", "buildings"}
    subprocess.run([*install, wheel], check=True, timeout=patience(100))
    add_packages(home, sysconfig.get_path("purelib"))
    return home


PAGES = ["tutorial", "features", "keys", "prices", "migrate", "example-survey", "example-wiki", "example-watch"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PAGES)
def test_a_reader_who_follows_a_page_gets_what_it_shows(name: str, reader: Reader) -> None:  # noqa: F811  # the fixture
    example = ROOT / "examples" / name.removeprefix("example-")
    if example.is_dir():
        reader.folder = copytree(example, reader.folder / "folder", ignore=ignore_patterns("data", "__pycache__"))
    reader.follow((ROOT / f"docs/{name}.md").read_text())
    assert reader.commands
