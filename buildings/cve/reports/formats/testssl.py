"""testssl.sh in CSV: each check has a row; those of severity OK passed and are no findings."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.formats.any_csv import has_columns
from buildings.cve.reports.items import Items
from buildings.cve.reports.paths import first_text

CHECKS = Items(at=".", ids=("id", "cve"), place="fqdnip : port", counts=lambda node: first_text(node, ("severity",)).upper() != "OK")

FORMS = (Form(name="testssl.sh", syntax="csv", recognises=has_columns("id", "fqdnip", "finding", "cve"), read=CHECKS.read),)
