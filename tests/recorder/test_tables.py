"""The migrations create the tables that the code declares, on both databases."""

import pytest
from recorder.recorders import Recorder

from buildings.recorder.tables import Tables
from campus.storage.alembic_runner import drift

pytestmark = pytest.mark.anyio


@pytest.mark.both_databases
async def test_the_migrations_create_the_tables_that_the_code_declares(recorder: Recorder) -> None:
    assert await drift(recorder.campus.site.storage, Tables, "recorder") == []
