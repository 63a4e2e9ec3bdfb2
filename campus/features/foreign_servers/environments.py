"""Environments for servers of the package indexes: folders beside campus.toml with a lock, and with what uv, pip or npm installed from it.

A server never shares campus's environment, where the resolver would silently take the old releases of it that fit campus's own
dependencies. The index is that of the installer's own configuration.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from campus.errors import LoadError, one_line

FOLDER = "servers"
"""Where the environments are, beside campus.toml: a folder for each building."""
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)(\[[\w.,-]+\])?(?P<version>[<>=!~]=?[\w.*+!,<>=~ -]+)?")
NPM_PACKAGE = re.compile(r"(?P<name>(@[\w.~-]+/)?[\w~][\w.~-]*)(?P<version>@[\w.^~<>=*+-]+)?")
PATHS = ("./", "../", "/")
FIRST_LINE = re.compile(r"# (?P<wanted>.*), for Python (?P<python>\S+)")
"""The first line of a lock of Python's: what was asked for, and for which Python, since another might need other packages."""
NEEDED_PYTHON = re.compile(r"(?:ython ?|supports? |not in ')>=(3\.\d+)")
"""How uv and pip say which Python a package needs."""
AFFIXES = re.compile(r"^(mcp[-_.]server|server|mcp)[-_.]|[-_.](mcp[-_.]server|server[-_.]mcp|mcp|server)$")
"""What names of packages say of every server."""
SHOWN_LINES = 8
HAS_PIP = find_spec("pip") is not None
"""Whether the environment of campus has pip; that of its image has none."""
OWN_TO_CAMPUS = ("CAMPUS_", "PYTHONPATH")
"""How variables begin that an installer does not get: secrets, and where campus finds packages that no environment has."""


@dataclass(frozen=True)
class Package:
    """What an operator named: a package of npm, or of PyPI; `wanted` is how its installer takes it."""

    wanted: str
    name: str
    is_npm: bool

    @classmethod
    def parse(cls, text: str) -> "Package":
        """`wikipedia-mcp`, `pypi:x==1.2`, `npm:x@1.2`, `@scope/x`, or a file or folder such as `./x`; LoadError for anything else."""
        prefix, colon, rest = text.partition(":")
        index, named = (prefix, rest) if colon and prefix in ("pypi", "npm") else ("npm" if text.startswith("@") else "", text)
        if named.startswith(PATHS):
            path = Path(named).resolve()
            if not path.exists():
                raise LoadError(f"there is no {named}; name a package, or a file or folder of one")
            name = path.name.partition("-")[0] if path.is_file() else path.name
            return cls(str(path), name, path.suffix == ".tgz" or (path / "package.json").is_file())
        if index != "npm":
            named = named.replace("@", "==")
        if not (found := (NPM_PACKAGE if index == "npm" else REQUIREMENT).fullmatch(named)):
            raise LoadError(f"{text!r} names no package; write a name of PyPI, as x or x==1.2, or npm:x, npm:x@1.2 or @scope/x")
        return cls(named, found["name"], index == "npm")

    @property
    def short_name(self) -> str:
        """The name without what every server's has: `time` for mcp-server-time."""
        name = self.name.rpartition("/")[2]
        return AFFIXES.sub("", name) or name


class PythonEnvironment:
    """A virtual environment: made by uv where it is installed, else by venv and pip. Its lock is a file of requirements with hashes."""

    def __init__(self, folder: Path, python: str | None = None) -> None:
        """`python` is a version, for uv, or a path; default: that of the lock, or else campus's own."""
        self.lock = folder / "requirements.txt"
        self._folder = folder
        self._uv = shutil.which("uv")
        self._python = python
        self._home = folder / ".venv"
        self._is_empty = False

    @property
    def wanted(self) -> str | None:
        """What the lock was made for; None if there is none."""
        return self._first_line["wanted"] if self._first_line else None

    @property
    def _first_line(self) -> re.Match[str] | None:
        return FIRST_LINE.match(self.lock.read_text(encoding="utf-8")) if self.lock.is_file() else None

    def resolve(self, wanted: Sequence[str], *, bounds: Sequence[str] = ()) -> None:
        """Write the versions of what is wanted, and of all that it needs, into the lock: by uv for every platform, by pip for this one."""
        self._make()
        if self._uv:
            options = ("--universal", "--generate-hashes", "--no-header", "--no-annotate", "--quiet")
            pinned = _run(
                self._folder, [self._uv, "pip", "compile", "-", *options, "--python", self._interpreter], "\n".join([*wanted, *bounds])
            )
        else:
            report = _run(self._folder, [*self._pip, "--dry-run", "--ignore-installed", "--report", "-", *wanted, *bounds])
            pinned = "".join(map(_pinned, json.loads(report)["install"]))
        version = _run(self._folder, [self._interpreter, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
        self.lock.write_text(f"# {' '.join(wanted)}, for Python {version}{pinned}", encoding="utf-8")

    def install(self) -> None:
        """In a new environment: nothing of an older one is left."""
        if not self._is_empty:
            self._make()
        self._is_empty = False
        if self._uv:
            words = [self._uv, "pip", "sync", "--quiet", "--require-hashes", "--python", self._interpreter, self.lock.name]
        else:
            words = [*self._pip, "--no-deps", "--require-hashes", "-r", self.lock.name]
        _run(self._folder, words)

    def commands(self, package: Package) -> Mapping[str, Path]:
        """The commands that the package brings, by name."""
        places = [str(each) for each in self._home.glob("lib/python*/site-packages")]
        found = next(iter(Distribution.discover(name=package.name, path=places)), None)
        scripts = found.entry_points.select(group="console_scripts") if found else ()
        return {script.name: self._home / "bin" / script.name for script in scripts}

    @property
    def _interpreter(self) -> str:
        return str(self._home / "bin/python")

    @property
    def _pip(self) -> Sequence[str]:
        """Campus's own pip where it has one: a copy in each environment would take seconds to install."""
        pip = ("-I", "-m", "pip")
        started = (sys.executable, *pip, "--python", self._interpreter) if HAS_PIP else (self._interpreter, *pip)
        return (*started, "install", "--quiet", "--disable-pip-version-check")

    def _make(self) -> None:
        """An empty environment, of the Python that was asked for, or for which the lock was made."""
        made_for = self._first_line and self._first_line["python"]
        own = "{}.{}".format(*sys.version_info)
        if self._uv:
            python = self._python or (made_for if made_for and made_for != own else sys.executable)
            _run(self._folder, [self._uv, "venv", "--quiet", "--no-project", "--clear", "--python", python, self._home.name])
        else:
            options = ("--clear", "--without-pip") if HAS_PIP else ("--clear",)
            _run(self._folder, [self._python or sys.executable, "-I", "-m", "venv", *options, self._home.name])
        self._is_empty = True


class NodeEnvironment:
    """A folder of npm. Its lock is npm's own, which names no index."""

    def __init__(self, folder: Path) -> None:
        self.lock = folder / "package-lock.json"
        self._folder = folder

    @property
    def wanted(self) -> str | None:
        return self._package["description"] if self.lock.is_file() else None

    @property
    def _package(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self._folder / "package.json").read_text(encoding="utf-8"))
        return found

    def resolve(self, wanted: Sequence[str], *, bounds: Sequence[str] = ()) -> None:
        """Without the address of the index that served them."""
        self.lock.unlink(missing_ok=True)
        package = json.dumps({"private": True, "description": " ".join(wanted)})
        (self._folder / "package.json").write_text(package, encoding="utf-8")  # otherwise npm looks for one in the folders above
        options = ("--package-lock-only", "--omit-lockfile-registry-resolved")
        self._run("install", *options, *wanted, *bounds)

    def install(self) -> None:
        self._run("ci")

    def commands(self, package: Package) -> Mapping[str, Path]:
        dependencies = self._package["dependencies"]
        name = package.name if package.name in dependencies else next(iter(dependencies))
        modules = self._folder / "node_modules"
        found = json.loads((modules / name / "package.json").read_text(encoding="utf-8")).get("bin") or {}
        names = [name.rpartition("/")[2]] if isinstance(found, str) else found
        return {each: modules / ".bin" / each for each in names}

    def _run(self, *words: str) -> None:
        if not (npm := shutil.which("npm")):
            raise LoadError("there is no npm, which installs such a server; install Node.js")
        _run(self._folder, [npm, *words, "--no-audit", "--no-fund", "--loglevel=error"])


Environment = PythonEnvironment | NodeEnvironment


def environment_for(folder: Path, *, is_npm: bool, python: str | None = None) -> Environment:
    """The environment of a folder, for a package of npm or of PyPI."""
    return NodeEnvironment(folder) if is_npm else PythonEnvironment(folder, python)


def locked_in(folder: Path) -> Sequence[Environment]:
    """The environments below a folder whose locks are there."""
    known = [environment_for(each, is_npm=is_npm) for each in sorted(folder.glob("*")) for is_npm in (True, False)]
    return [one for one in known if one.lock.is_file()]


def _pinned(entry: Mapping[str, Any]) -> str:
    """A line of the lock for what pip's report chose; LoadError if it has no hash."""
    name, version = entry["metadata"]["name"], entry["metadata"]["version"]
    hashes = entry["download_info"].get("archive_info", {}).get("hashes", {})
    if "sha256" not in hashes:
        raise LoadError(f"{name} {version} is no file of which a hash can be noted; build a wheel of it and name that")
    place = f" @ {entry['download_info']['url']}" if entry["is_direct"] else f"=={version}"
    return f"{name}{place} --hash=sha256:{hashes['sha256']}\n"


def _run(folder: Path, words: Sequence[str], text: str | None = None) -> str:
    """What the command prints; LoadError with the last lines of its errors."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(OWN_TO_CAMPUS)}
    try:
        ran = subprocess.run(  # noqa: S603  # an installer that was found, and what the operator named
            words, cwd=folder, env=environ, input=text or "", capture_output=True, encoding="utf-8", errors="replace", check=False
        )
    except OSError as error:
        raise LoadError(f"{words[0]} cannot be run: {error.strerror}") from None
    if ran.returncode:
        told = [line for each in ran.stderr.splitlines() if (line := one_line(each, longest=None))]
        newer = [each for each in NEEDED_PYTHON.findall(ran.stderr) if each not in (f"3.{sys.version_info[1]}", "3.0")]
        hint = [f"it may need another Python: add --python {newer[-1]}"] if newer else []
        raise LoadError("\n".join([f"{Path(words[0]).name} fails:", *told[-SHOWN_LINES:], *hint]))
    return ran.stdout
