"""The operator's pages on its listener, where CAMPUS_OPERATOR_PASSWORD is set; else they are not loaded."""

from typing import Any

from campus.building import Building
from campus.http_parts import HttpPart


class Operator(HttpPart):
    def operators(self) -> dict[str, Any]:
        """See HttpPart."""
        password = self.campus.plan.config.operator_password
        if password is None:
            return {}
        from campus.features.operator.routes import operators_pages  # 50 ms

        layout, pages = operators_pages(self.campus, password)
        return {"pages": pages, "problem_page": layout.problem_page}


building = Building(http=Operator)
