"""Both frames."""

import pytest

from campus.testing import Frame


@pytest.fixture(params=["http", "mcp"])
def frame(request: pytest.FixtureRequest) -> Frame:
    frame: Frame = request.param
    return frame
