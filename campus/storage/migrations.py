"""A building's migrations on disk: numbered steps in a folder `migrations` beside, or above, the module of its tables."""

import inspect
import re
from dataclasses import dataclass
from pathlib import Path

from sqlmodel import SQLModel

STEP = re.compile(r"(\d{4})_\w+\.py")


@dataclass(frozen=True)
class History:
    """The steps of one building: `0001_lists.py` is step 0001. A step is never edited after its release."""

    folder: Path
    steps: tuple[str, ...]

    @property
    def head(self) -> str | None:
        """The newest step; None when there is none yet."""
        return self.steps[-1] if self.steps else None

    @property
    def next(self) -> str:
        """The number of the step to come."""
        return f"{int(self.head or 0) + 1:04d}"


def history_of(tables: type[SQLModel]) -> History:
    """The steps that are there, found by name alone: Alembic is not loaded."""
    folder = _folder_near(tables)
    names = sorted(path.name for path in folder.glob("*.py")) if folder.is_dir() else []
    return History(folder, tuple(match[1] for name in names if (match := STEP.fullmatch(name))))


def _folder_near(tables: type[SQLModel]) -> Path:
    """The nearest `migrations` up to the top of the package; where none is, the one to be made beside the module.

    A module in no package has `<module>_migrations`.
    """
    file = Path(inspect.getfile(tables))
    depth = tables.__module__.count(".") + (file.name == "__init__.py")
    if depth == 0:
        return file.with_name(f"{file.stem}_migrations")
    candidates = [folder / "migrations" for folder in file.parents[:depth]]
    return next((folder for folder in candidates if folder.is_dir()), candidates[0])
