"""campus init: writes a campus.toml."""

import json
import os
from pathlib import Path

from campus.cli.options import CAMPUS_TOML, ConfigFile
from campus.cli.places import Place, read_place
from campus.errors import ConfigError

TEMPLATE = Path(__file__).with_name("campus.toml.template")
OWN_SERVER = '# [buildings.hello]\n# server = "./hello.py:mcp"\n'
"""The lines of the template in whose place a server of the author's own is written."""


def init(place: Place = None, /, *, config: ConfigFile = CAMPUS_TOML) -> None:
    """Write a campus.toml with comments, which serves the directory, or also a FastMCP server in one file."""
    if config.exists():
        raise ConfigError(f"{config} exists already; edit it, or name another file with --config FILE")
    text = TEMPLATE.read_text(encoding="utf-8")
    if place:
        settings = read_place(place)
        for name, table in settings.buildings.items():
            file = os.path.relpath(settings.folder, config.resolve().parent)
            target = f"./{Path(file) / str(table.server)}"
            text = text.replace(OWN_SERVER, f"[buildings.{name}]\nserver = {toml_text(target)}\n")
    append(config, text, mode=0o666)
    print(f"{config} is written: `campus serve` serves it, `campus dev` while you edit")


def toml_text(text: str) -> str:
    """A text as TOML: JSON's form, in which only one character more needs an escape."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f").encode(errors="replace").decode()


def append(path: Path, text: str, *, mode: int) -> None:
    """Write the text at the end of a file; `mode` is that of a new one."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}; name another file with --config FILE") from None
