"""A building's migrations: the numbered steps in its folder `migrations`, and whether its database has what the code needs.

Alembic, which runs and writes the steps, is loaded only for that: see alembic_runner.py.
"""

import inspect as python_inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, inspect
from sqlmodel import SQLModel

from campus.errors import StorageError
from campus.storage.database import Storage

NAME = re.compile(r"[a-z][a-z0-9_]{0,47}(\.[a-z][a-z0-9_]{0,46})?")
VERSION_TABLE = "alembic_version"
STEP = re.compile(r"(\d{4})_\w+\.py")
CONTRACT = re.compile(r"^contract = True$", re.MULTILINE)


class Place(NamedTuple):
    """Of `campus.limits`, a feature's name, the database `campus` and `limits`; a building's name is a database of its own."""

    database: str
    feature: str

    @property
    def version_table(self) -> str:
        return f"{VERSION_TABLE}_{self.feature}" if self.feature else VERSION_TABLE


def place_of(name: str) -> Place:
    """Where the tables are whose history has this name."""
    database, _, feature = name.partition(".")
    return Place(database, feature)


class Version(NamedTuple):
    """The step that a database is at, and the oldest step whose code can use it; None if that is not known."""

    step: str
    usable_from: str | None


@dataclass(frozen=True)
class History:
    """The steps of one building or feature: `0001_lists.py` is step 0001. A step is never edited after its release.

    A step that takes away what the release before still uses has the line `contract = True`: it contracts. All others expand.
    """

    folder: Path
    steps: tuple[str, ...]
    version_table: str = VERSION_TABLE

    @property
    def head(self) -> str | None:
        return self.steps[-1] if self.steps else None

    def contracts(self, step: str) -> bool:
        """Whether code of earlier steps cannot use a database any more after this one."""
        return any(CONTRACT.search(file.read_text(encoding="utf-8")) for file in self.folder.glob(f"{step}_*.py"))

    def due(self, step: str | None) -> "History":
        """The steps that servers of the release before can serve with, for a database at this step: without those last ones that contract.

        One that others follow is of a release before, so it waits no longer. A new database gets them all.
        """
        steps = self.steps
        while step is not None and steps[-1] != step and self.contracts(steps[-1]):
            steps = steps[:-1]
        return replace(self, steps=steps)

    def admits(self, version: Version) -> bool:
        """Whether a database of a newer release can be used by this one: its steps since then did only expand."""
        return version.usable_from is not None and self.steps[0] <= version.usable_from <= self.steps[-1] < version.step

    @property
    def next(self) -> str:
        return f"{int(self.head or 0) + 1:04d}"


def history_of(tables: type[SQLModel], name: str) -> History:
    """The steps of a building's or a feature's tables, found by file name; Alembic is not loaded."""
    place = place_of(name)
    folder = _folder_near(tables, beside=bool(place.feature))
    files = sorted(path.name for path in folder.glob("*.py")) if folder.is_dir() else []
    return History(folder, tuple(match[1] for file in files if (match := STEP.fullmatch(file))), place.version_table)


def is_table_of(feature: str, table: str, features: Iterable[str] = ()) -> bool:
    """Whether a table's name says that it is the feature's, whose tables are named as it is or begin with its name and `_`.

    Of several features it belongs to the one with the longest name, and to the database's owner, "", if to none.
    """
    named = [each for each in features if table == each or table.startswith(f"{each}_")]
    return not table.startswith(VERSION_TABLE) and feature == max(named, key=len, default="")


def refuse_unusable(name: str, tables: type[SQLModel], history: History) -> None:
    """Raises StorageError for a wrong name of a history or of a feature's table, and for tables without steps."""
    if not NAME.fullmatch(name):
        raise StorageError(f"{name!r} cannot name a database: use at most 48 lower-case letters, digits and _, a letter first")
    if not history.steps:
        raise StorageError(f'{name} has tables and no migrations; write the first: campus migration {name} "first tables"')
    feature = place_of(name).feature
    if feature and (strange := [table for table in tables.metadata.tables if not is_table_of(feature, table, [feature])]):
        raise StorageError(f"{name} has the table {strange[0]!r}; let the names of its tables begin with {feature}_")


async def missing_from(storage: Storage, tables: type[SQLModel]) -> str | None:
    """The first table or column that calls would fail on, in a few words; None when there is none.

    It compares names, which costs milliseconds. `campus check` compares types too, and loads Alembic for that.
    """
    async with storage.read() as session:
        return await (await session.connection()).run_sync(_missing, tables)


def how_to_migrate(building: str) -> str:
    return (
        f'write the missing migration: campus migration {building} "what changes"; if it says that there is nothing to write, a step was'
        " edited after it ran here: undo that, or restore a backup"
    )


def _folder_near(tables: type[SQLModel], *, beside: bool) -> Path:
    """The nearest `migrations` beside the tables' module or above it, up to the top of its package; a feature's are always beside it.

    When there is none, the folder to create beside the module; a module outside any package has `<module>_migrations`.
    """
    file = Path(python_inspect.getfile(tables))
    depth = tables.__module__.count(".") + (file.name == "__init__.py")
    if depth == 0:
        return file.with_name(f"{file.stem}_migrations")
    candidates = [folder / "migrations" for folder in file.parents[: 1 if beside else depth]]
    return next((folder for folder in candidates if folder.is_dir()), candidates[0])


def _missing(connection: Connection, tables: type[SQLModel]) -> str | None:
    found = {name: columns for (_, name), columns in inspect(connection).get_multi_columns().items()}
    for name, table in tables.metadata.tables.items():
        if name not in found:
            return f"there is no table {name}"
        stored = {column["name"] for column in found[name]}
        if absent := [column.name for column in table.columns if column.name not in stored]:
            return f"the table {name} has no column {absent[0]}"
        required = [one["name"] for one in found[name] if not one["nullable"] and one["default"] is None]
        if unknown := [column for column in required if column not in table.columns]:
            return f"the column {unknown[0]} of the table {name} must be filled, and the code does not know it"
    return None
