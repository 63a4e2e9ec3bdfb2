"""campus tools and campus migration: lists the buildings' tools and writes their migrations."""

from typing import Annotated

import anyio
from cyclopts import App, Parameter

from campus.app import open_servers
from campus.catalog.loader import find, installed_buildings
from campus.cli.options import CAMPUS_TOML, AsJson, ConfigFile, show
from campus.config import read_config
from campus.errors import LoadError

app = App()


@app.command
def tools(*, config: ConfigFile = CAMPUS_TOML, as_json: AsJson = False) -> None:
    """Every tool of every building with its route, tier and price; opens no database."""
    directory = anyio.run(open_servers, read_config(config))
    rows = [
        {
            "building": entry.name,
            "tool": tool.name,
            "tier": tool.tier,
            "price": tool.price,
            "scope": tool.key_scope,
            "http": ", ".join(tool.http),
        }
        for entry in directory.buildings()
        for tool in entry.tools
    ]
    show(rows, as_json=as_json)


@app.command
def migration(building: str, text: Annotated[str, Parameter(help="What the step does, in a few words.")]) -> None:
    """Write the next step of a building's database history from its tables; read it before you commit it."""
    from campus.storage.alembic_runner import write_revision

    tables = find(building, installed_buildings()).tables
    if tables is None:
        raise LoadError(f"building {building!r} has no tables=, so there is nothing to migrate")
    print(write_revision(tables, text))
