"""A served campus with a list and a checkout, for the tests of its OpenAPI documents."""

from collections.abc import Iterator

import pytest
from conformance.town import NOBODY_PAYS, Town, open_town


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with open_town(tmp_path_factory.mktemp("town"), payments=NOBODY_PAYS) as town:
        yield town
