"""campus add openapi URL: reads the document of an API, lists its operations as tools, and writes its table into campus.toml."""

import os
import tomllib
from typing import Annotated

import anyio
from cyclopts import Parameter

from campus.catalog.loader import installed_buildings, load
from campus.catalog.server import OpenBuilding, open_server
from campus.cli.options import CAMPUS_TOML, ConfigFile
from campus.cli.places import building_name
from campus.config import Config, config_of
from campus.errors import ConfigError
from campus.features.foreign_servers.add import check_is_new, prices_of, read_price, tools_table
from campus.features.foreign_servers.written import append_tables, text_of, toml_value

READ_SECONDS = 60.0


def openapi(
    document: Annotated[str, Parameter(help="The OpenAPI document, 3.0 or 3.1, JSON or YAML: its address, or a file.")],
    /,
    *,
    name: Annotated[str | None, Parameter(help="What to call the building; default: the API's title.")] = None,
    base_url: Annotated[str | None, Parameter(help="Where the API is, if its document does not say so.")] = None,
    header: Annotated[
        tuple[str, ...],
        Parameter(negative="", help='A header of each call, as "X-Api-Key: ${PETS_KEY}": campus.toml names the variable, not its value.'),
    ] = (),
    price: Annotated[str | None, Parameter(help="US dollars for a call of any operation, instead of what is suggested.")] = None,
    free: Annotated[bool, Parameter(negative="", help="Everybody may call all of its operations.")] = False,
    dry_run: Annotated[bool, Parameter(negative="", help="Print what would be written.")] = False,
    config: ConfigFile = CAMPUS_TOML,
) -> None:
    """Write the table of an API into campus.toml, whose operations become tools and routes, with a suggested price for each.

    Its document is read, and no operation is called. No value of a secret is written.
    """
    if price is not None and free:
        raise ConfigError("--free and --price contradict each other; give one of them")
    price = None if price is None else read_price(price)
    server: dict[str, object] = {"openapi": _relative(document, config)}
    server |= ({"base_url": base_url} if base_url else {}) | ({"headers": dict(map(_read_header, header))} if header else {})
    opened = anyio.run(_opened, name or "api", server, config)
    building = name or building_name(opened.server.name)
    check_is_new(building, config)
    prices = prices_of(opened, price, is_free=free)
    table = f"\n[buildings.{building}]\nserver = {toml_value(server)}\n{tools_table(building, prices)}"
    if dry_run:
        print(table)
        return
    append_tables(config, table)
    print(f"[buildings.{building}] is in {config}: {len(opened.tools)} tools. `campus serve` serves them at /v1/{building}/…")


def _relative(document: str, config: ConfigFile) -> str:
    """A file as campus.toml names it."""
    return document if "://" in document else os.path.relpath(document, config.resolve().parent)


def _read_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not (name.strip() and colon and value.strip()):
        raise ConfigError('--header is written as "X-Api-Key: ${PETS_KEY}"')
    return name.strip(), value.strip()


async def _opened(name: str, server: dict[str, object], path: ConfigFile) -> OpenBuilding:
    """The building as campus serves it."""
    tables = tomllib.loads(text_of(path))
    config: Config = config_of({"server": tables.get("server", {}), "buildings": {name: {"server": server}}}, path)
    loaded = load(name, config.buildings[name], config.secrets, installed_buildings(), folder=config.folder, is_local=config.is_local)
    return await open_server(loaded, per_call=True, seconds=READ_SECONDS)
