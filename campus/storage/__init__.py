"""A building's own database, with the same guarantees whatever it is: SQLite files, or what an entry point of campus.storage opens."""

from campus.storage.database import Storage, in_snapshot, in_transaction
from campus.storage.tables import (
    EPOCH,
    MICROSECOND,
    Json,
    Moment,
    Span,
    UtcDateTime,
    among,
    column_pages,
    insert_columns,
    is_postgres,
    registry,
)

__all__ = [
    "EPOCH",
    "MICROSECOND",
    "Json",
    "Moment",
    "Span",
    "Storage",
    "UtcDateTime",
    "among",
    "column_pages",
    "in_snapshot",
    "in_transaction",
    "insert_columns",
    "is_postgres",
    "registry",
]
