"""Naming many rows in one statement whose text is always the same, so that it is prepared once, on both databases."""

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, Connection, String, any_, func, literal, select


def is_postgres(connection: Connection) -> bool:
    """Whether it is PostgreSQL; else it is SQLite."""
    return connection.dialect.name == "postgresql"


def among(connection: Connection, column: ColumnElement[Any], ids: Iterable[str]) -> ColumnElement[bool]:
    """Whether a column of texts has one of these values."""
    if is_postgres(connection):
        return column == any_(literal(list(ids), ARRAY(String)))
    each = func.json_each(json_of(ids)).table_valued("value")
    return column.in_(select(each.c.value))


def json_of(ids: Iterable[str]) -> str:
    """Values as SQLite's json_each takes them."""
    return json.dumps(list(ids))
