"""The house rules that a program can check: layers, circles, names, sizes, first lines."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("twins", "campus", "buildings")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
DUMPING_GROUNDS = re.compile(r"^(utils?|helpers?|common|misc|base|managers?)$")
FRONT_DOORS = {"campus", "campus.alerts", "campus.testing", "twins"}
IMPORTS = ("twins", "campus", "campus.alerts", "campus.testing", "campus.payments.setup")
"""In this order each imports those before it, or leaves them as they are."""
HEAVY = {"web3", "eth_tester", "eth_account", "eth_abi", "x402", "alembic", "cyclopts", "asyncpg"}
BUILDINGS = sorted(path.name for path in (ROOT / "buildings").iterdir() if (path / "__init__.py").exists())


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports, `from package import module` by both of its names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


MODULES = {module_of(path): path for path in FILES}
GRAPH = {name: {target for target in imports_of(path) if target in MODULES and target != name} for name, path in MODULES.items()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is_in_its_first_line_and_stays_short(path: Path) -> None:
    text = path.read_text()
    first_line = text.partition("\n")[0]
    assert re.match(r'"""\S.*[.?:]("""$|$)', first_line), f"{path.name} does not begin with a one-sentence docstring"
    assert text.count("\n") <= 350, f"{path.name} is over 350 lines"
    assert not DUMPING_GROUNDS.match(path.stem), f"{path.name} is a dumping ground"
    assert "TYPE_CHECKING" not in text, f"{path.name} hides a circle"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_function_is_over_50_lines_and_no_class_over_150(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        limit = 150 if isinstance(node, ast.ClassDef) else 50
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < limit, f"{node.name} in {path.name} is over {limit} lines"


def test_layers_point_down_only() -> None:
    below = {"twins": ("twins",), "campus": ("campus", "twins"), "buildings": ("buildings", "campus", "twins")}
    for name, targets in GRAPH.items():
        for target in targets:
            assert target.split(".")[0] in below[name.split(".")[0]], f"{name} imports {target}"


def test_buildings_use_the_front_doors_and_never_each_other() -> None:
    for name, path in MODULES.items():
        if not name.startswith("buildings."):
            continue
        own = ".".join(name.split(".")[:2])
        for target in imports_of(path):
            if target.split(".")[0] in ("campus", "twins"):
                assert target.rpartition(".")[0] in FRONT_DOORS or target in FRONT_DOORS, f"{name} imports {target}"
            elif target.startswith("buildings."):
                assert target == own or target.startswith(own + "."), f"{name} imports {target}"


def test_there_are_no_import_circles() -> None:
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join((*trail, name))
        if name not in done:
            for target in GRAPH[name]:
                visit(target, (*trail, name))
            done.add(name)

    for name in GRAPH:
        visit(name, ())


@pytest.fixture(scope="module")
def loaded() -> Mapping[str, Sequence[str]]:
    """The packages that are in memory after each import, one after the other in one process."""
    code = "import sys, json\nloaded = {}\n" + "".join(
        f"import {name} as door; [getattr(door, name) for name in getattr(door, '__all__', [])]; loaded[{name!r}] = sorted(sys.modules)\n"
        for name in IMPORTS
    )
    result = subprocess.run([sys.executable, "-c", f"{code}print(json.dumps(loaded))"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found: Mapping[str, Sequence[str]] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("name", IMPORTS)
def test_an_import_loads_nothing_heavy(name: str, loaded: Mapping[str, Sequence[str]]) -> None:
    assert not HEAVY & set(loaded[name])
    assert name != "twins" or "campus" not in loaded[name]


@pytest.mark.parametrize("door", sorted(FRONT_DOORS))
def test_a_front_door_says_what_it_offers(door: str) -> None:
    offered = import_module(door)
    assert [getattr(offered, name) for name in offered.__all__]


def test_the_repository_names_no_package_registry_and_no_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    assert not {Path(name).name for name in names} & {"uv.lock", "pylock.toml"}
    hosts = re.compile(r"py" r"pi\.org|python" r"hosted\.org|npm" r"js\.org")
    for name in names:
        text = (ROOT / name).read_text(errors="ignore")
        assert not hosts.search(text), f"{name} names a package registry"
