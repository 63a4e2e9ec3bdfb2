"""campus.toml as the operator's page shows it: with every default, and without anything that is or may hold a secret."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from campus.catalog.loader import LoadedBuilding
from campus.config import Config
from campus.observability.logs import redacted
from campus.secrets import HIDDEN, SECRET_NAME

OPAQUE = frozenset({"env", "headers", "args"})
"""Keys of another server's table whose values may hold anything."""
PLAIN_NAMES = frozenset({"key"})
"""Names of campus's own that only look like a secret: the key rule of a tool."""


def shown_configuration(config: Config, loaded: Sequence[LoadedBuilding]) -> str:
    tables: dict[str, Any] = config.model_dump(mode="json", exclude={"buildings"}, exclude_none=True)
    if config.server.admin is not None:
        tables["server"]["admin"] = str(config.server.admin)
    tables["buildings"] = {one.name: _building(one) for one in loaded}
    return "\n".join(_lines((), tables)).strip()


def _building(loaded: LoadedBuilding) -> dict[str, Any]:
    table = loaded.table.model_dump(mode="json", exclude_defaults=True)
    settings = loaded.settings.model_dump(mode="json", exclude_none=True) if isinstance(loaded.settings, BaseModel) else {}
    return {**settings, **table}


def _lines(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[str]:
    plain = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
    if path and (plain or not table):
        yield f"\n[{'.'.join(map(_name, path))}]"
    for name, value in plain.items():
        yield f"{_name(name)} = {_shown(name, value, path)}"
    for name, value in table.items():
        if isinstance(value, Mapping):
            below = (*path, name)
            yield from [f"\n[{'.'.join(map(_name, below))}]\n# {HIDDEN}"] if _is_hidden(name, path) else _lines(below, value)


def _is_hidden(table: str, path: tuple[str, ...]) -> bool:
    """Whether a table is hidden as a whole. What a building, a product or a tool is called says nothing of secrets."""
    is_setting = len(path) > 1 and path[0] == "buildings" and "tools" not in path
    return table in OPAQUE or (is_setting and SECRET_NAME.search(table) is not None)


def _shown(name: str, value: Any, path: tuple[str, ...]) -> str:
    is_own = name in PLAIN_NAMES and "tools" in path
    if name in OPAQUE or (SECRET_NAME.search(name) and not is_own and not isinstance(value, bool | int | float)):
        return json.dumps(HIDDEN)
    if isinstance(value, Mapping):
        return json.dumps(HIDDEN)
    if isinstance(value, list):
        return f"[{', '.join(_shown('', one, path) for one in value)}]"
    return json.dumps(redacted(value) if isinstance(value, str) else value, ensure_ascii=False)


def _name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
