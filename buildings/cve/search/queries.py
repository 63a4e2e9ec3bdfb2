"""What fits criteria, in SQL: a page of it with its number, the numbers of all of it, and the rows of given CVEs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, Row, Select, func, select, true

from buildings.cve.archive.epss import LONGEST_WEEK, WEEK
from buildings.cve.arguments import spelled
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.enrichment import Ssvc
from buildings.cve.ranking.results import DECIMALS
from buildings.cve.search.criteria import Criteria, Days, risen
from buildings.cve.search.models import FoundCve
from buildings.cve.tables import CVES, EPSS_DAYS, RANKED
from campus.storage import among

NUMBER = RANKED.c.number
LIST = RANKED.outerjoin(CVES, CVES.c.number == NUMBER)
IS_RANKED = RANKED.c.rank != 0  # no range: an index would be slower than reading all
KNOWN = (
    *("kev_added", "kev_due", "kev_ransomware", "kev_entry", "severity", "cvss", "vendor", "product"),
    *("exploitation", "automatable", "technical_impact"),
)


@dataclass(frozen=True)
class Page:
    """How many CVEs fit, and the rows of a page of them."""

    total: int
    rows: Sequence[Row[Any]]


def days_of(connection: Connection, edition: Edition, *, today: date) -> Days:
    """The days that criteria count from: EPSS is compared with that of a week before, if one is stored and of the same model."""
    issue = edition.facts.issues.epss
    day, issued = EPSS_DAYS.c.day, issue.issued.date()
    stored = select(day, EPSS_DAYS.c.model).where(day.between(issued - LONGEST_WEEK, issued - WEEK)).order_by(day.desc()).limit(1)
    before = connection.execute(stored).one_or_none()
    return Days(today=today, week_before=before.day if before and before.model == issue.version else None)


def page_of(connection: Connection, criteria: Criteria, days: Days, *, sort: str, limit: int, offset: int) -> Page:
    """A page of what fits. It is found once: counted, ordered, and only the page is read in full."""
    key = {"rank": RANKED.c.rank, "rise": -risen(days), "due": CVES.c.kev_due}[sort]
    fitting = _fitting(criteria, days, NUMBER, RANKED.c.rank, key.label("key"))
    fit = (fitting.where(key.is_not(None)) if sort == "due" else fitting).cte("fit")
    total = select(func.count().label("total")).select_from(fit).subquery()
    page = select(fit).order_by(fit.c.key, fit.c.rank).limit(limit).offset(offset).subquery()
    shown = total.outerjoin(page, true()).outerjoin(RANKED, page.c.number == NUMBER).outerjoin(CVES, CVES.c.number == NUMBER)
    rows = connection.execute(select(total.c.total, *_columns(days)).select_from(shown).order_by(page.c.key, page.c.rank)).all()
    return Page(rows[0].total, [row for row in rows if row.number is not None])


def numbers_of(connection: Connection, criteria: Criteria, days: Days) -> list[int]:
    """The numbers of all CVEs that fit, the first rank first."""
    return list(connection.scalars(_fitting(criteria, days, NUMBER).order_by(RANKED.c.rank)))


def rows_of(connection: Connection, numbers: Iterable[int], days: Days) -> Sequence[Row[Any]]:
    """The rows of these CVEs, in no order."""
    chosen = select(*_columns(days)).select_from(LIST).where(among(connection, NUMBER, numbers))
    return connection.execute(chosen).all()


def _fitting(criteria: Criteria, days: Days, *columns: ColumnElement[Any]) -> Select[Any]:
    """The ranked CVEs that fit. Only where a criterion is about it is `cve` read, and then it may be read first."""
    fitting = select(*columns).where(IS_RANKED, *criteria.conditions(days))
    return fitting.where(CVES.c.number == NUMBER) if CVES in fitting.get_final_froms() else fitting


def _columns(days: Days) -> Sequence[ColumnElement[Any]]:
    ranked = (NUMBER, RANKED.c.rank, RANKED.c.score, RANKED.c.epss)
    return (*ranked, *(CVES.c[name] for name in KNOWN), risen(days).label("rise"))


def ssvc_of(row: Row[Any]) -> Ssvc | None:
    points = row.exploitation, row.automatable, row.technical_impact
    return Ssvc(*points) if any(points) else None


def found_of(row: Row[Any]) -> FoundCve:
    listing = orjson.loads(row.kev_entry) if row.kev_entry else {}
    return FoundCve(
        rank=row.rank,
        cve_id=spelled(row.number),
        score=round(row.score, DECIMALS),
        kev=row.kev_added is not None,
        kev_date_added=listing.get("date_added"),
        kev_due_date=row.kev_due,
        ransomware=True if row.kev_ransomware else None,
        epss=row.epss,
        epss_rise=None if row.rise is None else round(row.rise, 5),
        severity=row.severity or "UNKNOWN",
        cvss=row.cvss,
        vendor=listing.get("vendor") or row.vendor or None,
        product=listing.get("product") or row.product or None,
    )
