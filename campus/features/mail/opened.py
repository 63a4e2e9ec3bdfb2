"""The Mail of [mail]: a mistake there is found before a database is opened, and `campus check` connects to the server."""

from collections.abc import Sequence

from campus.building import Building, Check
from campus.catalog.parts import FeatureSite, PlanPart
from campus.catalog.server import OpenBuilding
from campus.config import Config
from campus.core import utc_now
from campus.features.mail.feature import PASSWORD, MailTable
from campus.features.mail.smtp import Mail, open_mail


def checked(config: Config, settings: MailTable, buildings: Sequence[OpenBuilding]) -> PlanPart:
    """ConfigError if it cannot work."""
    open_mail(settings, config.secrets.get(PASSWORD), utc_now)
    return PlanPart()


def opened(site: FeatureSite[MailTable]) -> Mail:
    return open_mail(site.settings, site.config.secrets.get(PASSWORD), site.clock)


async def server_answers(site: FeatureSite[MailTable, Mail]) -> Sequence[str]:
    """What is wrong with the server."""
    return await site.state.check()


building = Building(plans=checked, state=opened, checks=[Check(server_answers)])
