"""The rules for code that a program can check: layers, front doors, names, sizes, first lines."""

import ast
import json
import logging
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from shutil import copy, copytree, ignore_patterns

import pytest
from reference import DOORS, SUBJECTS

ROOT = Path(__file__).parents[1]
PACKAGES = ("twins", "campus", "buildings")
FILES = sorted(path for package in (*PACKAGES, "benchmarks") for path in (ROOT / package).rglob("*.py"))
NAMES_THAT_SAY_NOTHING = re.compile(r"^(utils?|helpers?|common|misc|base|managers?)$")
FRONT_DOORS = {*DOORS, *SUBJECTS}
IMPORTS = ("twins", "campus", "campus.features.alerts", "campus.testing", "campus.features.payments.setup")
"""In this order each imports those before it, or leaves them as they are."""
LATE = (ROOT / "campus/__init__.py", ROOT / "campus/features/alerts/__init__.py")
"""Their names are imported at the first use."""
HEAVY = {"web3", "eth_tester", "eth_account", "eth_abi", "x402", "alembic", "cyclopts", "asyncpg", "apprise", "requests"}


def test_every_module_says_what_it_is_in_its_first_line() -> None:
    for path in FILES:
        text = path.read_text()
        first_line = text.partition("\n")[0]
        assert re.match(r'"""\S.*[.?:]("""$|$)', first_line), f"{path} does not begin with a one-sentence docstring"
        assert not NAMES_THAT_SAY_NOTHING.match(path.stem), f"{path} has a name that says nothing"
        assert "TYPE_CHECKING" not in text or path in LATE, f"{path} hides a circle"


@cache
def nodes_of(path: Path) -> Sequence[ast.AST]:
    return [*ast.walk(ast.parse(path.read_text()))]


def test_no_data_of_a_log_line_has_a_name_that_logging_refuses() -> None:
    calls = [node for path in FILES if "extra=" in path.read_text() for node in nodes_of(path) if isinstance(node, ast.Call)]
    given = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "extra"]
    names = {key.value for each in given if isinstance(each, ast.Dict) for key in each.keys if isinstance(key, ast.Constant)}
    assert "reason" in names
    assert names.isdisjoint(vars(logging.makeLogRecord({})) | {"message": "", "asctime": ""})


def test_no_module_has_python_parse_the_cookies_of_strangers() -> None:
    for path in (path for path in FILES if "cookies" in path.read_text()):
        nodes = nodes_of(path)
        assert not [each for each in nodes if isinstance(each, ast.ImportFrom | ast.Import) and "cookies" in ast.unparse(each)], path
        read = [ast.unparse(each.value) for each in nodes if isinstance(each, ast.Attribute) and each.attr == "cookies"]
        assert not [each for each in read if each.endswith(("request", "Request(scope)"))], (
            f"{path}: use Cookies.sent of campus.layout.forms"
        )


PLANTED = {
    "twins/http/routes.py": "from campus import Problem",
    "campus/storage/errors.py": "from campus import app",
    "buildings/cve/ranking/formula.py": "from buildings.recorder import building",
    "buildings/gateway/how_to_pay.py": "from campus.site import Site",
    "campus/checks.py": "from campus.features.operator.feature import PASSWORD",
    "campus/features/limits/step.py": "from campus.features.usage.tables import UsageRow",
    "campus/directory.py": "from twins.http.routes import RouteTable",
}
"""One import against each contract."""


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "lint-imports"
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "400"}
    command = [program, "--no-cache", "--config", folder / "pyproject.toml"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_contracts_of_imports_hold_and_find_each_planted_violation(tmp_path: Path) -> None:
    for package in PACKAGES:
        copytree(ROOT / package, tmp_path / package, ignore=ignore_patterns("__pycache__"))
    copy(ROOT / "pyproject.toml", tmp_path)
    kept = lint_imports(tmp_path)
    assert kept.returncode == 0, kept.stdout
    for file, line in PLANTED.items():
        path = tmp_path / file
        path.write_text(path.read_text() + f"\n{line}  # noqa: E402, F401\n")
    broken = lint_imports(tmp_path)
    assert broken.returncode == 1
    found = broken.stdout.partition("Broken contracts")[2]
    for file, line in PLANTED.items():
        importer, imported = file.removesuffix(".py").replace("/", "."), line.split()[1]
        assert re.search(rf"{re.escape(importer)} -> {re.escape(imported)}", found), (file, line, found)


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


def test_a_command_for_keys_starts_without_what_serves_tools() -> None:
    code = "import sys, campus.cli.keys; print(*{'fastmcp', 'mcp', 'mcp_types', 'twins', 'x402', 'alembic', 'asyncpg'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "\n"


MAY_WAIT = re.compile(r"httpx\.|fail_after|process\.wait|subprocess\.")
IMPATIENT = {"get", "post", "put", "patch", "delete", "head", "options", "request", "stream", "Client", "AsyncClient"}
PROGRAMS = {"browser.py", "call_with_mcp1.py", "connect_with_mcp1.py"}
"""Files of tests/clients that run without the tests' own modules."""


def waits_too_little(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if name.startswith("httpx.") and name.removeprefix("httpx.") in IMPATIENT:
        return True
    waits = [*call.args[:1]] if name.endswith(("fail_after", "process.wait")) else []
    waits += [keyword.value for keyword in call.keywords if keyword.arg == "timeout"] if name.startswith("subprocess.") else []
    return any(isinstance(each, ast.Constant) and isinstance(each.value, int | float) and each.value >= 1 for each in waits)


def test_no_test_gives_up_before_a_busy_machine_could_answer() -> None:
    files = [
        path for path in (ROOT / "tests").rglob("*.py") if path.name not in {"patient.py", *PROGRAMS} and "conformance" not in path.parts
    ]
    texts = {path: text for path in files if MAY_WAIT.search(text := path.read_text())}
    calls = [(path.name, node) for path, text in texts.items() for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    assert not [f"{name}:{call.lineno} {ast.unparse(call)}" for name, call in calls if waits_too_little(call)]
    planted = ("httpx.get(url)", "httpx.AsyncClient(timeout=None)", "anyio.fail_after(5)", "subprocess.run(words, timeout=60)")
    assert all(waits_too_little(ast.parse(each, mode="eval").body) for each in planted)  # type: ignore[arg-type]  # they are calls


@pytest.mark.parametrize("door", sorted(FRONT_DOORS))
def test_a_front_door_says_what_it_offers(door: str) -> None:
    offered = import_module(door)
    assert [getattr(offered, name) for name in offered.__all__]


def test_a_building_needs_few_names_and_each_further_subject_has_a_module_that_it_may_import() -> None:
    names = import_module("campus").__all__
    assert len(names) <= 16
    closed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    closed = next(each for each in closed if each["name"].startswith("Front doors: buildings"))
    opened = {each.partition(" -> ")[2] for each in closed["ignore_imports"]}
    modules = {f"campus.{each.stem}" for each in (ROOT / "campus").iterdir() if each.suffix == ".py" or (each / "__init__.py").exists()}
    offered = modules - set(closed["protected_modules"]) - {"campus.__init__", "campus.__main__"} | opened
    assert offered == {"campus.features.alerts", *SUBJECTS}


def test_the_repository_names_no_package_registry_and_no_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not {Path(name).name for name in listed.split("\0")} & {"uv.lock", "pylock.toml"}
    hosts = r"py" r"pi\.org|python" r"hosted\.org|npm" r"js\.org"
    found = subprocess.run(["git", "grep", "-lE", hosts], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (1, ""), "these name a package registry"
