"""`python -m benchmarks.mutants`: makes small changes of product code, one at a time in a copy, and prints which of them the tests see.

The same seed draws the same changes while product code is the same: so two versions of the tests are compared.
"""

import ast
import os
import random
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory

import cyclopts

ROOT = Path(__file__).parents[1]
NOT_CHANGED = ("/migrations/", "/new_building/", "/testing/", "/chain/")
FOLDERS = {
    "alerts": "alerts recorder", "checkout": "checkout keys", "discovery": "service contract", "gateway": "gateway connect",
    "http": "http service", "jobs": "jobs service", "keys": "keys connect", "operator": "pages service",
    "paywall": "features/payments/terms keys", "storage": "storage service", "twins": "twins contract",
}  # fmt: skip
"""Where the tests of a package are, if not only in the folder of its name."""
ALL_PARTS = "service features/payments/terms http"
"""Where the tests of what has no such folder are."""
SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One change of one file."""

    file: str
    place: int
    """Which of the file's possible changes it is."""

    def source(self) -> tuple[str, str]:
        """The whole file after the change, and the change in one line."""
        tree = ast.parse((ROOT / self.file).read_text())
        node, change = list(changes_in(tree))[self.place]
        before = first_line(node)
        change()
        return ast.unparse(ast.fix_missing_locations(tree)), f"{self.file}:{node.lineno}: {before}  →  {first_line(node)}"

    def tests(self) -> Sequence[str]:
        """The folders of tests that are run for it."""
        package = next(name for name in self.file.split("/") if name not in ("campus", "buildings", "features"))
        folders = FOLDERS.get(package, package if (ROOT / "tests" / package).is_dir() else ALL_PARTS)
        of_feature = ["features"] if self.file.startswith("campus/features/") else []
        return [f"tests/{folder}" for folder in (*of_feature, *folders.split()) if (ROOT / "tests" / folder).is_dir()]


def first_line(node: ast.stmt | ast.expr) -> str:
    return ast.unparse(node).partition("\n")[0]


def changes_in(tree: ast.Module) -> Iterator[tuple[ast.stmt | ast.expr, Callable[[], None]]]:
    """Each node that can be changed, with what changes it."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ops=[operator]):
                yield node, partial(setattr, node, "ops", [SWAPPED[type(operator)]()])
            case ast.BoolOp(op=operator):
                yield node, partial(setattr, node, "op", ast.Or() if isinstance(operator, ast.And) else ast.And())
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield node, partial(setattr, node, "operand", ast.UnaryOp(ast.Not(), operand))
            case ast.If(test=test):
                yield node, partial(setattr, node, "test", ast.UnaryOp(ast.Not(), test))
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                yield node, partial(setattr, node, "value", number + 1)
            case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
                yield node, partial(setattr, node, "value", ast.Constant(None))
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield node, partial(setattr, node, "value", ast.Constant(None))


def drawn(number: int, *, seed: int, below: str) -> Sequence[Change]:
    """Changes of product code below a folder, each as likely as any other."""
    files = [str(path.relative_to(ROOT)) for package in ("twins", "campus", "buildings") for path in sorted((ROOT / package).rglob("*.py"))]
    chosen = [file for file in files if file.startswith(below) and file.count("/") > 0 and not any(each in file for each in NOT_CHANGED)]
    changes = [Change(file, place) for file in chosen for place in range(len(list(changes_in(ast.parse((ROOT / file).read_text())))))]
    return random.Random(seed).sample(changes, number)


def copied(folder: Path) -> Path:
    """A copy of this checkout, and an environment whose programs run the copy with the packages that are installed here."""
    copy = folder / "copy"
    copytree(ROOT, copy, ignore=ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis"))
    (folder / "shared").symlink_to(ROOT.parent / "shared")
    venv.create(copy / ".venv", symlinks=True)
    here, there = Path(sys.prefix), copy / ".venv"
    packages = Path(sysconfig.get_path("purelib"))
    (there / packages.relative_to(here) / "copy.pth").write_text(f"{copy}\n{packages}\n")
    for script in (here / "bin").iterdir():
        if not script.is_symlink() and script.read_bytes().startswith(f"#!{here}".encode()):
            (there / "bin" / script.name).write_text(script.read_text().replace(str(here), str(there), 1))
            (there / "bin" / script.name).chmod(0o755)
    (there / "mcp1").symlink_to(here / "mcp1")
    return copy


def outcome(copy: Path, tests: Sequence[str], *, seconds: float) -> str:
    """Run these tests until the first fails or the time is over."""
    words = [str(copy / ".venv/bin/python"), "-m", "pytest", *tests, "-x", "-q", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider"]
    with subprocess.Popen(words, cwd=copy, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "not seen before the time was over"
    failed = next((line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))), output[-200:])
    return f"seen: {failed}" if process.returncode else "NOT SEEN"


def main(*, number: int = 16, seed: int = 1, seconds: float = 600, below: str = "") -> None:
    """Draw changes, try each, and print what became of it.

    `seconds` limits the tests of one change; `below` is the folder whose code is changed, such as campus/features/payments.
    """
    seen = 0
    with TemporaryDirectory(prefix="campus-mutants-") as folder:
        copy = copied(Path(folder))
        for change in drawn(number, seed=seed, below=below):
            source, line = change.source()
            path = copy / change.file
            original = path.read_text()
            path.write_text(source)
            begun = time.monotonic()
            result = outcome(copy, change.tests(), seconds=seconds)
            path.write_text(original)
            seen += result.startswith("seen")
            print(f"{line}\n    {time.monotonic() - begun:.0f} s, {result}", flush=True)
    print(f"{seen} of {number} changes were seen")


if __name__ == "__main__":
    cyclopts.run(main)
