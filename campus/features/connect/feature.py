"""[connect] of campus.toml."""

from typing import Annotated

from pydantic import AfterValidator

from campus.addresses import read_origin
from campus.feature import Command, Feature, Settings


class ConnectTable(Settings):
    """[connect]: lets clients in that speak OAuth only, such as chat apps, by a key that their user types on a page."""

    url: Annotated[str, AfterValidator(read_origin)] | None = None
    """A host of its own for it, such as https://connect.example.com; default: /connect below the public URL."""
    client_documents: bool = True
    """Whether a client's id may be the URL of its metadata document. False where campus cannot reach the internet: clients register."""


feature = Feature(
    "campus.features.connect.routes:building",
    settings=ConnectTable,
    tables="campus.features.connect.tables:Tables",
    commands=[
        Command(
            "key clients",
            "campus.features.connect.command:clients",
            "List the connected clients, such as chat apps, that a key or one of its rotations let in.",
        )
    ],
    paths=["/connect/"],
    delegates="campus.features.connect.let_in:delegates",
)
