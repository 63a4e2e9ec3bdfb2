"""Both frames."""

from typing import Any

import pytest


@pytest.fixture(params=["http", "mcp"])
def frame(request: pytest.FixtureRequest) -> Any:
    return request.param
