"""Storage: a SQLite file, or a PostgreSQL schema, of its own for every building; the same promises on both."""

from campus.storage.columns import Json, UtcDateTime
from campus.storage.house import House
from campus.storage.registry import registry
from campus.storage.room import NoStorage, Storage, try_write
from campus.storage.vault import Vault

__all__ = ["House", "Json", "NoStorage", "Storage", "UtcDateTime", "Vault", "registry", "try_write"]
