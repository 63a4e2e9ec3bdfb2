"""Whether a database has the tables and columns that the code will ask for: a look at names, which costs milliseconds."""

from sqlalchemy import Connection, inspect
from sqlmodel import SQLModel

from campus.storage.database import Storage


async def missing_from(storage: Storage, tables: type[SQLModel]) -> str | None:
    """The first table or column that calls would fail on, in a few words; None when there is none.

    Types are left to `campus check`, which compares all of it and loads Alembic for that.
    """
    async with storage.read() as session:
        return await (await session.connection()).run_sync(_missing, tables)


def _missing(connection: Connection, tables: type[SQLModel]) -> str | None:
    there = {name: columns for (_, name), columns in inspect(connection).get_multi_columns().items()}
    for name, table in tables.metadata.tables.items():
        if name not in there:
            return f"there is no table {name}"
        found = {column["name"]: column for column in there[name]}
        if lacking := [column.name for column in table.columns if column.name not in found]:
            return f"the table {name} has no column {lacking[0]}"
        wanting = [
            one["name"] for one in there[name] if not one["nullable"] and one["default"] is None and one["name"] not in table.columns
        ]
        if wanting:
            return f"the column {wanting[0]} of the table {name} must be filled, and the code does not know it"
    return None
