"""The house's own tables: what campus itself stores stands in the room `campus`."""

from sqlmodel import SQLModel

from campus.storage.registry import registry


class CoreTables(SQLModel, registry=registry()):
    """Base of the house's tables: keys and jobs."""
