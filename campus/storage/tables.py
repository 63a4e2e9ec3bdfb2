"""The parts of which tables are made on both databases: a registry per building, column types, the base of campus's own tables."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Dialect,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    any_,
    func,
    literal,
    orm,
    select,
)
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
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The moment from which spans are counted: 1970-01-01, UTC."""
ROWS_AT_ONCE = 1_000
"""More take twice as long: the collector of garbage looks at them."""
MICROSECOND = timedelta(microseconds=1)
"""A number of them is a span at a third of the cost of timedelta(microseconds=number)."""


def registry() -> orm.registry:
    """Where a building's tables are known: `class Tables(SQLModel, registry=registry()): ...`, then `class Tide(Tables, table=True)`.

    Each building has its own, so that two buildings may both have a table `monitor`.
    """
    return orm.registry(metadata=MetaData(naming_convention=CONSTRAINT_NAMES))


class CoreTables(SQLModel, registry=registry(), defer_build=True):  # no row is validated: a validator of each would delay the start
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


class Moment(TypeDecorator[datetime]):
    """A time in UTC as microseconds since 1970: an eighth of the cost of UtcDateTime, for tables that every call reads and writes."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else (value - EPOCH) // MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else EPOCH + value * MICROSECOND


class Span(TypeDecorator[timedelta]):
    """A length of time in microseconds."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: timedelta | None, dialect: Dialect) -> int | None:
        return None if value is None else value // MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> timedelta | None:
        return None if value is None else value * MICROSECOND


def is_postgres(connection: Connection) -> bool:
    """Whether it is PostgreSQL; else it is SQLite."""
    return connection.dialect.name == "postgresql"


def among(connection: Connection, column: ColumnElement[Any], values: Iterable[str] | Iterable[int]) -> ColumnElement[bool]:
    """Whether a column of texts or numbers has one of these values. The statement is always the same, so that it is prepared once."""
    if is_postgres(connection):
        return column == any_(literal(list(values), ARRAY(BigInteger if isinstance(column.type, Integer) else String)))
    each = func.json_each(json.dumps(list(values))).table_valued("value")
    return column.in_(select(each.c.value))


def insert_columns(connection: Connection, table: Table, *columns: Iterable[Any]) -> None:
    """Insert many rows, given as columns in the table's order: without SQLAlchemy's work on each, in a third of the time."""
    insert = table.insert().compile(dialect=connection.dialect, column_keys=table.c.keys())
    rows = zip(*map(partial(_bound, connection.dialect), table.c, columns), strict=False)
    while part := list(islice(rows, ROWS_AT_ONCE)):
        connection.exec_driver_sql(str(insert), part)


def _bound(dialect: Dialect, column: Column[Any], values: Iterable[Any]) -> Iterable[Any]:
    process = column.type.dialect_impl(dialect).bind_processor(dialect)
    return map(process, values) if process else values


def column_pages(connection: Connection, chosen: Select[*tuple[Any, ...]], key: ColumnElement[Any]) -> Iterator[Sequence[Sequence[Any]]]:
    """What many rows hold, page by page in the order of `key`, the first that is selected: as columns of numbers and texts.

    They are as the driver returns them, without types, in a third of the time.
    """
    last = None
    while True:
        page = chosen if last is None else chosen.where(key > last)
        cursor = connection.execute(page.order_by(key).limit(ROWS_AT_ONCE)).cursor
        assert cursor is not None, "it is a selection"
        if not (rows := cursor.fetchall()):
            return
        columns = list(zip(*rows, strict=True))
        yield columns
        last = columns[0][-1]
