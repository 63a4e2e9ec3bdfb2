"""The migrations make the tables as the code has them, on both databases."""

from typing import Any

import pytest

from buildings.recorder.tables import Tables
from campus.storage.alembic_runner import drift

pytestmark = pytest.mark.anyio


async def test_the_migrations_make_the_tables_of_the_code(anywhere: Any) -> None:
    assert await drift(anywhere.campus.site.storage, Tables) == []
