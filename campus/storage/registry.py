"""A registry of its own for every building, so that two may both have a table `monitor`."""

from sqlalchemy import MetaData, orm

NAMES = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
}
"""Every constraint has a name, the same on both databases: a later migration can drop it."""


def registry() -> orm.registry:
    """Where a building's tables are known: `class Tables(SQLModel, registry=registry()): ...`, then `class Tide(Tables, table=True)`."""
    return orm.registry(metadata=MetaData(naming_convention=NAMES))
