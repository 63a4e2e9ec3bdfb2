"""pip-audit: its JSON of today and of before 2.0."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, has, table


def _vulns(at: str) -> Items:
    return Items(at=at, ids=("id", "aliases"), package="^name", version="^version", fixed="fix_versions")


FORMS = (
    Form(name="pip-audit", syntax="json", recognises=has("dependencies", "fixes"), read=table(_vulns("dependencies.vulns"))),
    Form(name="pip-audit", syntax="json", recognises=has("dependencies.vulns"), read=table(_vulns("dependencies.vulns"))),
    Form(name="pip-audit before 2.0", syntax="json", recognises=has("name", "vulns"), read=table(_vulns("vulns"))),
)
