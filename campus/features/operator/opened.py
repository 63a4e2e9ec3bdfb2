"""The operator's pages on its listener, where CAMPUS_OPERATOR_PASSWORD is set; else they are not loaded."""

from typing import Any

from campus.building import Building, Check
from campus.catalog.parts import FeatureSite
from campus.checks import Warned
from campus.features.operator.feature import PASSWORD, password_of
from campus.http_parts import HttpPart


class Operator(HttpPart):
    def operators(self) -> dict[str, Any]:
        """See HttpPart."""
        password = password_of(self.campus.plan.config.secrets)
        if password is None:
            return {}
        from campus.features.operator.routes import operators_pages  # 50 ms

        layout, pages = operators_pages(self.campus, password)
        return {"pages": pages, "problem_page": layout.problem_page}


async def password(site: FeatureSite[Any, Any]) -> list[Warned]:
    """Whether it opens anything."""
    if site.config.server.admin is not None or password_of(site.config.secrets) is None:
        return []
    return [Warned(f"{PASSWORD} has no effect: the operator's pages are on the listener admin, which is off; set admin")]


building = Building(http=Operator, checks=[Check(password)])
