"""A bank's storage on either database, and packages of tables made for one test."""

import importlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlmodel import SQLModel

from campus.storage import Storage
from campus.storage.databases import Databases
from tests.storage.bank.tables import Tables

MakePackage = Callable[..., type[SQLModel]]

EMPTY = """
from campus.storage import registry
from sqlmodel import SQLModel

class Tables(SQLModel, registry=registry()):
    pass
"""


@pytest.fixture
async def databases(storage_url: str) -> AsyncIterator[Databases]:
    async with Databases.open(storage_url) as opened:
        yield opened


@pytest.fixture
async def bank(databases: Databases) -> Storage:
    return await databases.storage_of("bank", Tables)


@pytest.fixture
async def other_bank(bank: Storage, storage_url: str) -> AsyncIterator[Storage]:
    async with Databases.open(storage_url) as opened:
        yield await opened.storage_of("bank", Tables)


@pytest.fixture
def make_package(tmp_path: Path) -> Iterator[MakePackage]:
    folder = tmp_path / "packages"
    folder.mkdir()
    sys.path.insert(0, str(folder))
    made: list[str] = []

    def make(name: str, steps: Mapping[str, str], tables: str = EMPTY) -> type[SQLModel]:
        package = folder / name
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "tables.py").write_text(tables)
        if steps:
            (package / "migrations").mkdir()
        for file, code in steps.items():
            (package / "migrations" / file).write_text(f"import sqlalchemy as sa\nfrom alembic import op\n{code}")
        made.append(name)
        importlib.invalidate_caches()
        found = importlib.import_module(f"{name}.tables").Tables
        assert issubclass(found, SQLModel)
        return found

    yield make
    sys.path.remove(str(folder))
    for name in [module for module in sys.modules if module.partition(".")[0] in made]:
        del sys.modules[name]


async def steps_in(storage: Storage) -> list[str]:
    async with storage.read() as session:
        found = await (await session.connection()).execute(text("SELECT version_num FROM alembic_version"))
        return list(found.scalars())
