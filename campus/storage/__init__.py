"""Storage: one SQLite file, or one PostgreSQL schema, for every building, with the same guarantees on both."""

from campus.storage.database import NoStorage, Storage, in_snapshot, in_transaction, try_write
from campus.storage.databases import Databases
from campus.storage.leases import Lease, is_held
from campus.storage.tables import EPOCH, MICROSECOND, CoreTables, Json, Moment, Span, UtcDateTime, among, is_postgres, registry

__all__ = [
    "EPOCH",
    "MICROSECOND",
    "CoreTables",
    "Databases",
    "Json",
    "Lease",
    "Moment",
    "NoStorage",
    "Span",
    "Storage",
    "UtcDateTime",
    "among",
    "in_snapshot",
    "in_transaction",
    "is_held",
    "is_postgres",
    "registry",
    "try_write",
]
