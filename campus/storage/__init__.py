"""Storage: a SQLite file, or a PostgreSQL schema, of its own for every building; the same promises on both."""

from campus.storage.columns import Json, UtcDateTime
from campus.storage.core_tables import CoreTables
from campus.storage.database import NoStorage, Storage, try_write
from campus.storage.databases import Databases
from campus.storage.leases import Backoff, Lease, is_held
from campus.storage.registry import registry
from campus.storage.secrets import Entropy, base62, random_base62, random_id, seal, unseal
from campus.storage.sql import Moment, Span, among, in_snapshot, in_transaction, is_postgres

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
