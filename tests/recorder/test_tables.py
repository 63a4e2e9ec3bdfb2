"""The migrations make the tables as the code has them, on both databases."""

import pytest
from recorder.recorders import Recorder

from buildings.recorder.tables import Tables
from campus.storage.alembic_runner import drift

pytestmark = pytest.mark.anyio


async def test_the_migrations_make_the_tables_of_the_code(anywhere: Recorder) -> None:
    assert await drift(anywhere.campus.site.storage, Tables) == []
