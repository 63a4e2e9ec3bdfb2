"""What campus does without some of the libraries' private names: tests/service/test_private_names.py takes all of them away at once.

Run by `make conformance`, and not by `make test`.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest
from service.test_private_names import CONTEXT, OBJECTS, UNSHIELDED, log_of_a_campus_without

pytestmark = pytest.mark.anyio
SHORTAGES: dict[str, tuple[dict[str, str], bool]] = {
    "one": ({"fastmcp": "fastmcp_request_ctx", "aiosqlite": "_execute _thread _running", "uvicorn": "HttpToolsProtocol"}, True),
    "context": ({"fastmcp": CONTEXT, "aiosqlite": "_connect", "uvicorn": "message_event"}, True),
    "objects": ({"fastmcp": OBJECTS, "uvicorn": "_start_asgi_task response_complete"}, False),
}
"""By a name: what each package lacks, and whether the log says that connections cannot be shielded."""


@pytest.mark.parametrize(("taken", "is_unshielded"), SHORTAGES.values(), ids=SHORTAGES)
async def test_a_campus_answers_without_some_of_the_private_names(tmp_path: Path, taken: Mapping[str, str], is_unshielded: bool) -> None:
    assert (UNSHIELDED in await log_of_a_campus_without(taken, tmp_path)) is is_unshielded
