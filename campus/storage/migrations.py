"""A building's migrations: the numbered steps in its folder `migrations`, and whether its database has what the code needs.

Alembic, which runs and writes the steps, is loaded only for that: see alembic_runner.py.
"""

import inspect as python_inspect
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, inspect
from sqlmodel import SQLModel

from campus.storage.database import Storage

STEP = re.compile(r"(\d{4})_\w+\.py")
CONTRACT = re.compile(r"^contract = True$", re.MULTILINE)


class Version(NamedTuple):
    """The step that a database is at, and the oldest step whose code can use it; None if that is not known."""

    step: str
    usable_from: str | None


@dataclass(frozen=True)
class History:
    """The steps of one building: `0001_lists.py` is step 0001. A step is never edited after its release.

    A step that takes away what the release before still uses has the line `contract = True`: it contracts. All others expand.
    """

    folder: Path
    steps: tuple[str, ...]

    @property
    def head(self) -> str | None:
        """The newest step; None when there is none yet."""
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
        """The number of the step to be written next."""
        return f"{int(self.head or 0) + 1:04d}"


def history_of(tables: type[SQLModel]) -> History:
    """The steps of the tables' building, found by file name; Alembic is not loaded."""
    folder = _folder_near(tables)
    names = sorted(path.name for path in folder.glob("*.py")) if folder.is_dir() else []
    return History(folder, tuple(match[1] for name in names if (match := STEP.fullmatch(name))))


async def missing_from(storage: Storage, tables: type[SQLModel]) -> str | None:
    """The first table or column that calls would fail on, in a few words; None when there is none.

    It compares names, which costs milliseconds. `campus check` compares types too, and loads Alembic for that.
    """
    async with storage.read() as session:
        return await (await session.connection()).run_sync(_missing, tables)


def how_to_migrate(building: str) -> str:
    """What to do about tables that differ from those of the database."""
    return (
        f'write the missing migration: campus migration {building} "what changes"; if it says that there is nothing to write, a step was'
        " edited after it ran here: undo that, or restore a backup"
    )


def _folder_near(tables: type[SQLModel]) -> Path:
    """The nearest `migrations` beside the tables' module or above it, up to the top of its package.

    When there is none, the folder to create beside the module; a module outside any package has `<module>_migrations`.
    """
    file = Path(python_inspect.getfile(tables))
    depth = tables.__module__.count(".") + (file.name == "__init__.py")
    if depth == 0:
        return file.with_name(f"{file.stem}_migrations")
    candidates = [folder / "migrations" for folder in file.parents[:depth]]
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
