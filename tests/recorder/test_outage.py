"""The recorder's own outage among clients that retry as the printed line does: no false alarm, and no death untold."""

import pytest
from recorder.outages import only_who_died_is_reported
from recorder.recorders import Recorder

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("outage", [60.0, 600.0])
async def test_only_who_died_is_reported(recorder: Recorder, outage: float) -> None:
    await only_who_died_is_reported(recorder, count=60, outage=outage)
