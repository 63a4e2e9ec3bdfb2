"""campus import: writes a table into campus.toml for each server of an MCP client's configuration."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from campus.cli.options import CAMPUS_TOML, ConfigFile
from campus.cli.places import building_name, read_place
from campus.config import REFERENCE
from campus.errors import ConfigError
from campus.features.foreign_servers.written import append_tables, text_of, toml_value

WRITTEN = ("command", "args", "env", "cwd", "url", "headers", "transport")
URLS = ("url", "serverUrl", "httpUrl")
"""What clients call the address of a remote server."""
UNFILLED = re.compile(rf"(?!{REFERENCE.pattern})\$\{{[^}}]*\}}")
OF_THE_ENVIRONMENT = re.compile(r"\$\{env:")
"""How VS Code refers to a variable."""


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
