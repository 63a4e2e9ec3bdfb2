"""The steps of the cve database, over what an earlier version has stored."""

import zlib
from importlib import import_module

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, select

from buildings.cve.tables import LATEST, LatestList
from campus.testing import Clock

STEP = import_module("buildings.cve.migrations.0002_unpacked_list")


@pytest.mark.parametrize("lists", [0, 1])
def test_a_list_that_was_stored_compressed_is_unpacked(lists: int) -> None:
    table, engine, now = LatestList.metadata.tables["latest_list"], create_engine("sqlite://"), Clock().time
    with engine.begin() as connection:
        table.create(connection)
        packed = {"id": LATEST, "version": "v", "day": now.date(), "made_at": now, "ranked": zlib.compress(b"columns"), "facts": b"facts"}
        for _ in range(lists):
            connection.execute(table.insert().values(**packed))
        with Operations.context(MigrationContext.configure(connection)):
            STEP.upgrade()
        assert connection.execute(select(table.c.ranked, table.c.facts)).all() == [(b"columns", b"facts")] * lists
