"""What a command is about: a campus.toml, or a FastMCP server in one file without one."""

import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from campus.cli.options import CAMPUS_TOML
from campus.config import NAME, Config, config_of, read_config, read_file_target, reserved_names
from campus.errors import ConfigError

Place = Annotated[
    Path | None,
    Parameter(help="A file with a FastMCP server, as hello.py or hello.py:mcp; a folder with one; or a campus.toml. Default: --config."),
]
SERVER = re.compile(r"\b(FastMCP|MCPServer|Building)\(")
GENERAL = frozenset(("__init__", "app", "building", "main", "mcp", "server"))
"""Names of files that say nothing: their folder's name says more."""


def read_place(place: Path) -> Config:
    """The configuration of a campus.toml; of a file with a server, or a folder with one, what serves it alone.

    Of a folder with a campus.toml that one. ConfigError says what is missing.
    """
    if place.is_dir():
        place = _in_folder(place)
    file = read_file_target(str(place), Path())
    if file is None:
        return read_config(place)
    path, name = file
    if not path.is_file():
        raise ConfigError(f"there is no {path}; name a file with a FastMCP server, a folder with one, or a campus.toml")
    building = name_for(path)
    target = f"./{path.name}:{name}" if name else f"./{path.name}"
    return config_of({"server": {"openapi": building}, "buildings": {building: {"server": target}}}, path)


def _in_folder(folder: Path) -> Path:
    """The campus.toml of a folder, else its only file with a server."""
    if (config := folder / CAMPUS_TOML).is_file():
        return config
    files = sorted(path for path in folder.glob("*.py") if not path.name.startswith(("test_", "conftest")))
    found = [path for path in files if SERVER.search(path.read_text(encoding="utf-8", errors="replace"))]
    if not found:
        raise ConfigError(f"{folder} has no campus.toml and no file with a FastMCP server; write one with `campus init`, or name a file")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ConfigError(f"{folder} has several files with a server: {names}; name one, as in {found[0]}")
    return found[0]


def name_for(path: Path) -> str:
    """What to call the building of a file: the file's name, or its folder's if that says nothing."""
    return building_name(path.resolve().parent.name if path.stem in GENERAL else path.stem)


def building_name(text: str) -> str:
    """The text as a building's name."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return name if re.match(NAME, name) and name not in reserved_names() else f"server_{name}".rstrip("_")
