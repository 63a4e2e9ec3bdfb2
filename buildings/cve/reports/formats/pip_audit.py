"""pip-audit: its JSON of today and of before 2.0."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, has


def _vulns(at: str) -> Items:
    return Items(at=at, ids=("id", "aliases"), package="^name", version="^version", fixed="fix_versions")


FORMS = (
    Form(name="pip-audit", recognises=has("dependencies", "fixes"), read=_vulns("dependencies.vulns").read),
    Form(name="pip-audit", recognises=has("dependencies.vulns"), read=_vulns("dependencies.vulns").read),
    Form(name="pip-audit before 2.0", recognises=has("name", "vulns"), read=_vulns("vulns").read),
)
