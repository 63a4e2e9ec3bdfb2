"""A building's own database: one SQLite file or one PostgreSQL schema, with the same guarantees on both."""

from campus.storage.database import Storage, in_snapshot, in_transaction
from campus.storage.tables import EPOCH, MICROSECOND, Json, Moment, Span, UtcDateTime, among, is_postgres, registry

__all__ = [
    "EPOCH",
    "MICROSECOND",
    "Json",
    "Moment",
    "Span",
    "Storage",
    "UtcDateTime",
    "among",
    "in_snapshot",
    "in_transaction",
    "is_postgres",
    "registry",
]
