"""The lines of stored reports in the database: stored with what is known of them, and judged again with each list."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, get_args

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from buildings.cve.arguments import Exposure, canonical, number_of, spelled
from buildings.cve.nvd.reading import lines_in
from buildings.cve.ranking.edition import Edition
from buildings.cve.tables import ALIASES, WATCH_LINES
from buildings.cve.watches.matching import Matcher, Watched
from buildings.cve.watches.models import NewsEntry
from buildings.cve.watches.reports import FOLLOWING, UNRANKED, Following, Known, Line, known_of, news_of
from campus.storage import among

MOST_PACKAGES = 100  # In the news of one CVE, which webhooks carry.
KNOWN = tuple(field.name for field in fields(Known))
CHANGE = (
    update(WATCH_LINES)
    .where(WATCH_LINES.c.watch_id == bindparam("of"), WATCH_LINES.c.place == bindparam("at"))
    .values(id=bindparam("id"), **{name: bindparam(name, type_=WATCH_LINES.c[name].type) for name in KNOWN})
)


@dataclass(frozen=True)
class Judge:
    """Says what one list knows of the lines of a report; nothing without a list."""

    edition: Edition | None
    following: Following
    judged: dict[tuple[str, Exposure, float], Known] = field(default_factory=dict)
    """What was judged already: the same CVEs stand in most reports."""

    def prepared(self, connection: Connection, lines: Iterable[Line]) -> "Judge":
        """With NVD's records of the lines that are not judged yet: of most CVEs a list holds none, and none would read as no fix."""
        if self.edition is None or self.edition.nvd.holds_all:
            return self
        nvd, least = self.edition.nvd, self.following.least_epss
        unknown = {number_of(line.id) for line in lines if canonical(line.id) and (line.id, line.exposed, least) not in self.judged}
        missing = unknown - nvd.lines.keys()
        return replace(self, edition=replace(self.edition, nvd=nvd.with_lines(lines_in(connection, missing)))) if missing else self

    def __call__(self, line: Line) -> Known:
        if self.edition is None or not canonical(line.id):
            return UNRANKED
        wanted = line.id, line.exposed, self.following.least_epss
        if (known := self.judged.get(wanted)) is None:
            known = known_of(self.edition, line.id, exposed=line.exposed, least_epss=wanted[-1], today=self.edition.day)
            self.judged[wanted] = known
        return known


def store_lines(connection: Connection, watch_id: str, lines: Sequence[Line], judge: Judge) -> None:
    """Store a report's lines in place of those of the report before.

    What is known of lines that were there already stays, so that its news is still told; of new ones what the list says now is none.
    """
    before = {_line(row): _known(row) for row in _rows(connection, watch_id)}
    connection.execute(WATCH_LINES.delete().where(WATCH_LINES.c.watch_id == watch_id))
    judge = judge.prepared(connection, lines)
    rows = [
        {"watch_id": watch_id, "place": place, **asdict(line), **asdict(before.get(line) or judge(line))}
        for place, line in enumerate(lines)
    ]
    if rows:
        connection.execute(insert(WATCH_LINES), rows)


@dataclass
class CveNews:
    """What is news of a CVE in the lines of a report, and the packages that it is in."""

    exposed: Exposure
    reasons: dict[str, None] = field(default_factory=dict)
    packages: dict[str, None] = field(default_factory=dict)


def judge_again(connection: Connection, watch: Row[Any], edition: Edition, matcher: Matcher) -> tuple[NewsEntry, ...]:
    """Store what a list says of a watch's lines; returns what is news of them, an entry for each CVE, the first rank first."""
    rows = _rows(connection, watch.id)
    resolved = _resolved(connection, [row.id for row in rows if not canonical(row.id)])
    lines = [replace(_line(row), id=resolved.get(row.id, row.id)) for row in rows]
    judge = Judge(edition, FOLLOWING.validate_json(watch.following), matcher.judged).prepared(connection, lines)
    found: dict[int, CveNews] = {}
    changes = []
    for row, line in zip(rows, lines, strict=True):
        before, now = _known(row), judge(line)
        if now == before and line.id == row.id:
            continue
        changes.append({"of": watch.id, "at": row.place, "id": line.id, **asdict(now)})
        if reasons := news_of(before, now, least_epss=judge.following.least_epss):
            news = found.setdefault(number_of(line.id), CveNews(line.exposed))
            news.exposed = "yes" if line.exposed == "yes" else news.exposed
            news.reasons |= dict.fromkeys(reasons)
            news.packages |= dict.fromkeys(filter(None, [f"{line.package} {line.version}".strip()]))
    if changes:
        connection.execute(CHANGE, changes)
    return tuple(sorted(_entries(found, matcher), key=lambda entry: entry.rank))


def _entries(found: Mapping[int, CveNews], matcher: Matcher) -> Iterator[NewsEntry]:
    for exposed in get_args(Exposure):
        numbers = [number for number, news in found.items() if news.exposed == exposed]
        for number, entry in zip(numbers, matcher.entries(numbers, Watched(exposed=exposed)), strict=True):
            news = found[number]
            yield entry.model_copy(update={"fits": tuple(news.reasons), "packages": tuple(news.packages)[:MOST_PACKAGES]})


def _resolved(connection: Connection, names: Sequence[str]) -> dict[str, str]:
    """The CVEs of names that were nobody's when the report was stored; of several the oldest."""
    if not names:
        return {}
    rows = connection.execute(select(ALIASES.c.id, ALIASES.c.number).where(among(connection, ALIASES.c.id, names)))
    return {name: spelled(number) for name, number in sorted(rows, reverse=True)}


def _rows(connection: Connection, watch_id: str) -> Sequence[Row[Any]]:
    return connection.execute(select(WATCH_LINES).where(WATCH_LINES.c.watch_id == watch_id).order_by(WATCH_LINES.c.place)).all()


def _line(row: Row[Any]) -> Line:
    return Line(row.id, row.package, row.version, row.exposed)


def _known(row: Row[Any]) -> Known:
    return Known(**{name: getattr(row, name) for name in KNOWN})
