"""Storage: a SQLite file, or a PostgreSQL schema, of its own for every building; the same promises on both."""

from campus.storage.columns import Json, UtcDateTime
from campus.storage.core_tables import CoreTables
from campus.storage.database import NoStorage, Storage, try_write
from campus.storage.databases import Databases
from campus.storage.registry import registry
from campus.storage.sql import Moment, Span, among, in_snapshot, in_transaction, is_postgres

__all__ = [
    "CoreTables",
    "Databases",
    "Json",
    "Moment",
    "NoStorage",
    "Span",
    "Storage",
    "UtcDateTime",
    "among",
    "in_snapshot",
    "in_transaction",
    "is_postgres",
    "registry",
    "try_write",
]
