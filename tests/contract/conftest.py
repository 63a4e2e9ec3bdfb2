"""A served campus with a list, for the tests of its OpenAPI documents."""

from collections.abc import Iterator

import pytest
from conformance.town import Town, open_town


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with open_town(tmp_path_factory.mktemp("town")) as town:
        yield town
