"""An outage of one minute and one of ten, with 2,000 clients that retry as the cron command does."""

import pytest
from recorder.conftest import authority, open_recorder, recorder  # noqa: F401  # fixtures
from recorder.outages import only_dead_agents_are_reported
from recorder.recorders import Recorder

pytestmark = pytest.mark.anyio


@pytest.mark.timeout(900)
@pytest.mark.parametrize("outage", [60.0, 600.0])
async def test_an_outage_leads_to_alerts_about_dead_agents_only(recorder: Recorder, outage: float) -> None:  # noqa: F811  # the fixture
    await only_dead_agents_are_reported(recorder, count=2_000, outage=outage)
