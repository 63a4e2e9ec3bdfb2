"""A served campus with a list and a checkout, for the tests of its OpenAPI documents."""

from collections.abc import Iterator

import pytest
from contract.served_campus import UNPAYABLE, ServedCampus, serve_campus


@pytest.fixture(scope="session")
def campus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCampus]:
    with serve_campus(tmp_path_factory.mktemp("campus"), payments=UNPAYABLE) as campus:
        yield campus
