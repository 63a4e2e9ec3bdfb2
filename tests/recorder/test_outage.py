"""An outage of the recorder, with clients that retry as the cron command does: no false alert, and no death unreported."""

import pytest
from recorder.outages import only_dead_agents_are_reported
from recorder.recorders import Recorder

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("outage", [60.0, 600.0])
async def test_an_outage_leads_to_alerts_about_dead_agents_only(recorder: Recorder, outage: float) -> None:
    await only_dead_agents_are_reported(recorder, count=60, outage=outage)
