"""Tables that commands write at the end of campus.toml."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from campus.config import config_of
from campus.features.scaffold.init import TEMPLATE, append, toml_text


def text_of(config: Path) -> str:
    """What a campus.toml says, or would say if there were one."""
    return (config if config.exists() else TEMPLATE).read_text(encoding="utf-8")


def append_tables(config: Path, tables: str, *, mode: int = 0o666) -> None:
    """Write tables at the end of a campus.toml, and a new one if there is none; ConfigError for what cannot be served."""
    text = text_of(config)
    config_of(tomllib.loads(text + tables), config)  # before anything is written
    if tables:
        line_end = "" if text.endswith("\n") else "\n"
        append(config, line_end + tables if config.exists() else text + tables, mode=mode)


def toml_value(value: Any) -> str:
    """A text, list or table as TOML, in one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(name)} = {toml_value(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return toml_text(value if isinstance(value, str) else json.dumps(value))


def toml_key(name: str) -> str:
    """A key as TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_text(name)
