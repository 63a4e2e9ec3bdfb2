"""campus key clients: the clients that a key let in."""

from dataclasses import asdict

import anyio

from campus.cli.keys import KeyName
from campus.cli.options import CAMPUS_TOML, AsJson, ConfigFile, optional_utc, show
from campus.cli.places import read_place
from campus.core import open_core
from campus.features.connect.let_in import ConnectedClient, clients_of


def clients(key: KeyName, /, *, config: ConfigFile = CAMPUS_TOML, as_json: AsJson = False) -> None:
    """List the connected clients, such as chat apps, that a key or one of its rotations let in."""

    async def found() -> list[ConnectedClient]:
        async with open_core(read_place(config), reading=True) as core:
            return list(await clients_of(core.storage, (await core.keys.named(key)).lineage, now=core.now()))

    show([asdict(one) | {"connected_at": optional_utc(one.connected_at)} for one in anyio.run(found)], as_json=as_json)
