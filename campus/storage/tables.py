"""What tables are declared with: a registry per building, column types, and the base of campus's own tables."""

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, MetaData, orm
from sqlalchemy.types import TypeDecorator
from sqlmodel import SQLModel

CONSTRAINT_NAMES = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
}
"""Every constraint has a name, the same on both databases, so that a later migration can drop it."""


def registry() -> orm.registry:
    """Where a building's tables are known: `class Tables(SQLModel, registry=registry()): ...`, then `class Tide(Tables, table=True)`.

    Each building has its own, so that two buildings may both have a table `monitor`.
    """
    return orm.registry(metadata=MetaData(naming_convention=CONSTRAINT_NAMES))


class CoreTables(SQLModel, registry=registry()):
    """Base of campus's own tables, which are stored under the name `campus`: jobs, keys and payments."""


class UtcDateTime(TypeDecorator[datetime]):
    """A point in time: an aware datetime in, an aware one in UTC out, to the microsecond. A naive datetime raises ValueError.

    In a table: `Field(sa_type=UtcDateTime)`.
    """

    impl = DateTime
    cache_ok = True

    def __init__(self) -> None:
        super().__init__(timezone=True)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC; SQLite stores text, and text compares rightly only in one time zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone; pass an aware datetime, such as datetime.now(UTC)")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """From the driver: asyncpg returns aware datetimes, sqlite3 naive ones."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Json(TypeDecorator[Any]):
    """A JSON value, which comes back with its keys in the order in which they were stored; None is NULL.

    On PostgreSQL the type is json and not jsonb, which sorts keys.
    """

    impl = JSON
    cache_ok = True

    def __init__(self) -> None:
        super().__init__(none_as_null=True)


def to_json(value: Any) -> str:
    """Compact JSON; ValueError for NaN and the infinities, which PostgreSQL refuses and SQLite would store."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


ENGINE_OPTIONS: dict[str, Any] = {"json_serializer": to_json, "hide_parameters": True}
"""For every engine. hide_parameters: an error that is logged shows no values."""
