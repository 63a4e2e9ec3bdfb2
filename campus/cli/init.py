"""campus init and campus import: write a campus.toml, and tables for the servers of an MCP client's configuration."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from campus.cli.options import CAMPUS_TOML, ConfigFile
from campus.cli.places import Place, building_name, read_place
from campus.config import REFERENCE, config_of
from campus.errors import ConfigError

TEMPLATE = Path(__file__).with_name("campus.toml.template")
OWN_SERVER = '# [buildings.hello]\n# server = "./hello.py:mcp"\n'
"""The lines of the template in whose place a server of the author's own is written."""
WRITTEN = ("command", "args", "env", "cwd", "url", "headers", "transport")
URLS = ("url", "serverUrl", "httpUrl")
"""What clients call the address of a remote server."""
UNFILLED = re.compile(rf"(?!{REFERENCE.pattern})\$\{{[^}}]*\}}")
OF_THE_ENVIRONMENT = re.compile(r"\$\{env:")
"""How VS Code refers to a variable."""


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
    _append(config, text, mode=0o666)
    print(f"{config} is written: `campus serve` serves it, `campus dev` while you edit")


def import_servers(
    file: Annotated[Path, Parameter(help="The configuration of Claude Desktop, Cursor, VS Code and the like: mcpServers or servers.")],
    /,
    *,
    config: ConfigFile = CAMPUS_TOML,
) -> None:
    """Write a table [buildings.NAME] into campus.toml for each server that an MCP client's configuration names.

    A campus.toml is written if there is none. The values of env and headers are copied: keep the file private.
    """
    servers = servers_of(file)
    text = text_of(config)
    taken = set(read_place(config).buildings if config.exists() else tomllib.loads(text)["buildings"])
    added, told = "", []
    for title, entry in servers.items():
        name = building_name(title)
        try:
            if name in taken:
                raise ConfigError(f"[buildings.{name}] is there already")
            added += f"\n[buildings.{name}]{'' if name == title else f'  # {title!r}'}\nserver = {table_of(entry)}\n"
        except ConfigError as error:
            told.append(f"{title!r} is left out: {error}")
            continue
        taken.add(name)
        ignored = sorted(entry.keys() - {*WRITTEN, *URLS, "type"}) if isinstance(entry, dict) else []
        told.append(f"[buildings.{name}]" + (f", without {', '.join(ignored)}" if ignored else ""))
    append_tables(config, added, mode=0o600)  # env and headers may hold secrets
    print(*told, sep="\n")
    if re.search(r"\b(env|headers) = ", added):
        print(f"{config} has the values of env and headers now; let nobody else read it")


def text_of(config: Path) -> str:
    """What a campus.toml says, or would say if there were one."""
    return (config if config.exists() else TEMPLATE).read_text(encoding="utf-8")


def append_tables(config: Path, tables: str, *, mode: int = 0o666) -> None:
    """Write tables at the end of a campus.toml, and a new one if there is none; ConfigError for what cannot be served."""
    text = text_of(config)
    config_of(tomllib.loads(text + tables), config)  # before anything is written
    if tables:
        line_end = "" if text.endswith("\n") else "\n"
        _append(config, line_end + tables if config.exists() else text + tables, mode=mode)


def servers_of(file: Path) -> Mapping[str, Any]:
    """The servers of a client's configuration by name; ConfigError if it names none."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no {file}; name the configuration of an MCP client") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not JSON: {error}; take comments and trailing commas out") from None
    inner = data.get("mcp") if isinstance(data, dict) else None
    for tables in (data, inner):
        for key in ("mcpServers", "servers"):
            if isinstance(tables, dict) and isinstance(servers := tables.get(key), dict) and servers:
                return servers
    raise ConfigError(f"{file} has neither mcpServers nor servers; name the configuration of an MCP client")


def table_of(entry: Any) -> str:
    """A server of a client's configuration as campus.toml has it, an inline table. ConfigError if campus cannot reach it so."""
    if not isinstance(entry, dict):
        raise ConfigError("it is no table")
    if entry.get("disabled") is True:
        raise ConfigError("it is disabled")
    url = next((entry[name] for name in URLS if entry.get(name)), None)
    if bool(url) == bool(entry.get("command")):
        raise ConfigError("it has both a command and an address" if url else "it has neither a command nor an address")
    if not isinstance(url or entry["command"], str):
        raise ConfigError("its command or address is no text")
    kind = entry.get("type", entry.get("transport"))
    remote = {"url": url, "headers": entry.get("headers"), "transport": "sse" if kind == "sse" else None}
    local = {name: entry.get(name) for name in ("command", "args", "env", "cwd")}
    value = OF_THE_ENVIRONMENT.sub("${", toml_value({name: value for name, value in (remote if url else local).items() if value}))
    if unfilled := UNFILLED.search(value):
        raise ConfigError(f"campus does not fill in {unfilled[0]}; write the value, or ${{NAME}} of a variable")
    return value


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


def toml_text(text: str) -> str:
    """A text as TOML: JSON's form, in which only one character more needs an escape."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f").encode(errors="replace").decode()


def _append(path: Path, text: str, *, mode: int) -> None:
    """Write the text at the end of a file; `mode` is that of a new one."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}; name another file with --config FILE") from None
