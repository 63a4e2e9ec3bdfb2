"""Storage: one SQLite file, or one PostgreSQL schema, for every building, with the same guarantees on both."""

from campus.storage.database import NoStorage, Storage, try_write
from campus.storage.databases import Databases
from campus.storage.leases import Backoff, Lease, is_held
from campus.storage.secrets import Entropy, base62, random_base62, random_id, seal, unseal
from campus.storage.sql import Moment, Span, among, in_snapshot, in_transaction, is_postgres
from campus.storage.tables import CoreTables, Json, UtcDateTime, registry

__all__ = [
    "Backoff",
    "CoreTables",
    "Databases",
    "Entropy",
    "Json",
    "Lease",
    "Moment",
    "NoStorage",
    "Span",
    "Storage",
    "UtcDateTime",
    "among",
    "base62",
    "in_snapshot",
    "in_transaction",
    "is_held",
    "is_postgres",
    "random_base62",
    "random_id",
    "registry",
    "seal",
    "try_write",
    "unseal",
]
