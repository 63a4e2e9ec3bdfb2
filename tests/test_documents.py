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
from shutil import copytree, ignore_patterns

import pytest
import reference
from patience import patience
from pydantic import BaseModel
from walkthrough import reading

from buildings.gateway import building as gateway
from buildings.recorder import building as recorder
from campus.testing import open_campus

ROOT = Path(__file__).parents[1]
FOLLOWED = ("tutorial.md", "keys.md", "prices.md", "migrate.md", "example-survey.md", "example-wiki.md", "example-watch.md")
DOCS = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_that_follows_from_the_code_is_as_the_code_says(name: str) -> None:
    assert DOCS[name] == reference.page(name), "run `make reference`, and commit the page"


def test_every_page_is_listed_in_the_index_and_in_the_sites_navigation_and_leads_on() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", DOCS["index.md"])
    assert sorted(listed) == sorted(DOCS.keys() - {"index.md"})
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    assert [page for part in navigation for pages in part.values() for page in ([pages] if isinstance(pages, str) else pages)] == [
        "index.md",
        *listed,
    ]
    assert [name for name in listed if not re.search(r"\n\*\*Next:\*\* .*\]\(\S+\.md", DOCS[name])] == []


def test_a_key_without_a_text_or_a_number_without_a_unit_is_named() -> None:
    class Untold(BaseModel):
        a_limit: int = 3

    with pytest.raises(reference.Missing, match="a_limit of Untold has no docstring"):
        list(reference.keys_of(Untold))
    with pytest.raises(reference.Missing, match="the number wait has no unit"):
        reference.unit_of("wait", "number", "How long it waits.")


@pytest.mark.anyio
async def test_a_running_campus_serves_every_page_and_no_link_of_it_is_dead() -> None:
    served: dict[str, str] = {}
    async with open_campus(gateway=gateway, recorder=recorder) as campus:

        async def read(path: str) -> str:
            if path not in served:
                answer = await campus.http.get(path, headers={"Accept": "text/html"})
                assert answer.status_code == 200, path
                served[path] = answer.text
            return served[path]

        waiting, seen = ["/docs"], set[str]()
        while waiting:
            seen.add(path := waiting.pop())
            text = await read(path)
            assert " style=" not in text, path
            for target in re.findall(r'(?:href|src)="([^"]+)"', text):
                page, _, anchor = target.partition("#")
                if target.startswith(("http:", "https:", "mailto:")):
                    continue
                page = page or path
                linked = await read(page)
                assert not anchor or f'id="{anchor}"' in linked, (path, target)
                if page.startswith("/docs") and page != "/docs/api" and page not in seen:
                    waiting.append(page)
        assert len(seen & {"/docs", *(f"/docs/{name.removesuffix('.md')}" for name in DOCS)}) == len(DOCS)
        as_markdown = (await campus.http.get("/docs/prices", headers={"Accept": "text/markdown"})).text
        assert as_markdown.startswith("[Documentation](/docs)\n\n# Set prices\n")
        assert (await campus.http.get("/docs/nothing")).status_code == 404
        assert (await campus.http.get("/docs/..%2fREADME")).status_code == 404


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
    dropped = {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped and "CAMPUS" not in name}
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
        "python -m pip install --quiet --no-deps -e .": f"{offline} -e .",
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FOLLOWED)
def test_a_reader_who_follows_a_page_gets_what_it_shows(
    name: str, tmp_path: Path, environ: Mapping[str, str], installed: Mapping[str, str]
) -> None:
    folder = tmp_path / "folder"
    example = ROOT / "examples" / name.removeprefix("example-").removesuffix(".md")
    copytree(example, folder, ignore=ignore_patterns("data", "__pycache__")) if example.is_dir() else folder.mkdir()
    with reading(folder, environ, installed) as reader:
        reader.follow(DOCS[name])
    assert reader.commands
