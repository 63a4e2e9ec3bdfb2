"""The CVE building's tables: CVEs, lists, forecasts and the data for grading them, the feeds' states, watches and their news."""

from datetime import date, datetime

from sqlalchemy import BigInteger, Index, Integer
from sqlmodel import Field, SQLModel

from campus.features.alerts import AlertTarget, Outbox, WaitingAlert
from campus.storage import Moment, UtcDateTime, registry

LATEST = 1
CveNumber = BigInteger().with_variant(Integer(), "sqlite")
"""A CVE's number as the primary key, of 64 bits: of this type SQLite finds a row at once, without an index."""


class Tables(SQLModel, registry=registry(), defer_build=True):  # no row is validated: a validator of each would delay the start
    """Base of the building's tables."""


class LatestList(Tables, table=True):
    """The list that is served, in one row; its CVEs are in `ranked`, and its KEV in `cve`.

    `version` changes with it and with the archive. `facts` is JSON: the CVEs that were removed from KEV, and the issues of the feeds.
    """

    __tablename__ = "latest_list"

    id: int = Field(default=LATEST, primary_key=True)
    version: str
    day: date
    made_at: datetime = Field(sa_type=UtcDateTime)
    facts: str


class Ranked(Tables, table=True):
    """The CVEs of the list that is served. The rank is 0 for those that are left out of it, because NVD rejects them."""

    __tablename__ = "ranked"

    number: int = Field(primary_key=True, sa_type=CveNumber, sa_column_kwargs={"autoincrement": False})
    rank: int
    score: float
    epss: float | None = None
    percentile: float | None = None


class Cve(Tables, table=True):
    """What is known of a CVE beside its rank and can be searched: KEV's entry in the list that is served, and NVD's record.

    `number` is year·10¹² + sequence. `kev_added` is the day of listing, else of the release that first had it; `kev_entry` is the
    entry as JSON. `status` is null while no record of NVD's was read. Severity and CVSS are those of the rating that counts; vendor and
    product those that the record names first. The three last are CISA's decision points (SSVC).
    """

    __tablename__ = "cve"

    number: int = Field(primary_key=True, sa_type=CveNumber, sa_column_kwargs={"autoincrement": False})
    kev_added: date | None = Field(default=None, index=True)
    kev_due: date | None = Field(default=None, index=True)
    kev_ransomware: bool | None = None
    kev_entry: str | None = None
    status: str | None = None
    published: date | None = Field(default=None, index=True)
    modified: date | None = None
    severity: str | None = Field(default=None, index=True)
    severity_source: str | None = None
    cvss: float | None = None
    patch_status: str | None = None
    exploit_url: str | None = None
    vendor: str | None = None
    product: str | None = None
    exploitation: str | None = None
    automatable: str | None = None
    technical_impact: str | None = None


class CveDetail(Tables, table=True):
    """NVD's record of a CVE as JSON, see nvd/records.py, and its description; apart from `cve`, so that a search reads less."""

    __tablename__ = "cve_detail"

    number: int = Field(primary_key=True, sa_type=CveNumber, sa_column_kwargs={"autoincrement": False})
    record: str
    description: str


class CveProduct(Tables, table=True):
    """A product that a CVE makes vulnerable, as NVD or KEV names it; the plain names are those that names are compared by."""

    __tablename__ = "cve_product"
    __table_args__ = (
        Index("ix_cve_product_plain_vendor", "plain_vendor", "number"),
        Index("ix_cve_product_plain_product", "plain_product", "number", "plain_vendor"),
        {"sqlite_with_rowid": False},
    )

    number: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    vendor: str = Field(primary_key=True)
    product: str = Field(primary_key=True)
    of_kev: bool = Field(primary_key=True)
    plain_vendor: str
    plain_product: str


class CveWeakness(Tables, table=True):
    """A weakness (CWE) that NVD's record of a CVE names."""

    __tablename__ = "cve_weakness"
    __table_args__ = ({"sqlite_with_rowid": False},)

    number: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    cwe: str = Field(primary_key=True, index=True)


class Alias(Tables, table=True):
    """A CVE that another name stands for, such as a GHSA; the name in upper case. `source` is the record that says so, as OSV's path."""

    __tablename__ = "alias"
    __table_args__ = ({"sqlite_with_rowid": False},)

    id: str = Field(primary_key=True)
    number: int = Field(primary_key=True, sa_type=BigInteger, index=True, sa_column_kwargs={"autoincrement": False})
    source: str = Field(primary_key=True, index=True)


class BriefEdition(Tables, table=True):
    """The brief of one day as published, kept for ever: its JSON. Edition 1 is the first, later ones correct it."""

    __tablename__ = "brief_edition"

    day: date = Field(primary_key=True)
    edition: int = Field(primary_key=True)
    made_at: datetime = Field(sa_type=UtcDateTime)
    brief: str


class EditionCve(Tables, table=True):
    """Rank and EPSS, in one edition, of a CVE that was in KEV or removed from it."""

    __tablename__ = "edition_cve"
    __table_args__ = ({"sqlite_with_rowid": False},)

    day: date = Field(primary_key=True)
    edition: int = Field(primary_key=True)
    number: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    rank: int
    epss: float | None = None


class KevChange(Tables, table=True):
    """KEV's entry of a CVE, as JSON, from one edition on until the next change; null where it is gone."""

    __tablename__ = "kev_change"
    __table_args__ = ({"sqlite_with_rowid": False},)

    number: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    day: date = Field(primary_key=True)
    edition: int = Field(primary_key=True)
    entry: str | None = None


class NvdState(Tables, table=True):
    """How far NVD was read, in one row; `version` changes with the records. `position` is where to go on, as JSON; None for a file."""

    __tablename__ = "nvd_state"

    id: int = Field(default=LATEST, primary_key=True)
    version: int
    entries: int
    read_at: datetime = Field(sa_type=UtcDateTime)
    position: str | None = None


class FeedState(Tables, table=True):
    """What the next request to a feed needs to know, and why the last one failed, if it did.

    `url` shows where a copy came from: scheme, host and a digest, since the rest of an address may hold a password.
    """

    __tablename__ = "feed_state"

    name: str = Field(primary_key=True)
    url: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    failed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    failure: str | None = None


class AliasSource(Tables, table=True):
    """How far an ecosystem of OSV was read: the newest change, how many records name a CVE, and what was read of the last days.

    `recent` has these records' names and times of change, as JSON. `whole_at` is when all records were last read at once.
    """

    __tablename__ = "alias_source"

    ecosystem: str = Field(primary_key=True)
    entries: int
    newest: datetime = Field(sa_type=UtcDateTime)
    recent: str
    read_at: datetime = Field(sa_type=UtcDateTime)
    whole_at: datetime = Field(sa_type=UtcDateTime)


class UnknownWord(Tables, table=True):
    """A word of a feed that no list of ours has: what it is (`kind`), what it was taken for, and when and how often it was seen."""

    __tablename__ = "unknown_word"

    feed: str = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    word: str = Field(primary_key=True)
    taken_as: str
    count: int
    first_day: date
    last_day: date


class FeedUrl(Tables, table=True):
    """An address of the full list's feeds. Its secret is stored as a digest. It belongs to a key's lineage, and `made_by` is its maker."""

    __tablename__ = "feed_url"

    id: str = Field(primary_key=True)
    digest: bytes = Field(unique=True)
    lineage: str = Field(index=True)
    made_by: str = ""
    label: str
    made_at: datetime = Field(sa_type=UtcDateTime)


class WatchOwner(Tables, table=True):
    """The lineage of a key that owns watches (a key keeps it when renewed or rotated), and when the key ends.

    `paused_at` is when its watches were paused because the key had ended.
    """

    __tablename__ = "watch_owner"

    lineage: str = Field(primary_key=True)
    ends_at: datetime = Field(sa_type=Moment)
    paused_at: datetime | None = Field(default=None, sa_type=Moment)


class Target(AlertTarget, Tables, table=True):
    """An address that news of watches are sent to."""


class WatchRow(Tables, table=True):
    """One watch: its criteria as JSON, and the CVEs that it knows, packed: those that it reported, and those that are no news to it,
    with a digest of those that matched when a list last changed them.

    One with `following` follows a report instead, whose lines are in `watch_line`; its criteria are not asked. With `needs_baseline` the
    CVEs of the served list that match are no news: the watch is new, or its criteria were changed.
    `nvd_complete` is whether all of NVD's records were read when it was last matched. `told` counts the CVEs that it reported.
    `made_by` is who made or last changed it; `stopped_at` is when it stopped because that key or client had ended.
    """

    __tablename__ = "watch"

    id: str = Field(primary_key=True)
    lineage: str = Field(foreign_key="watch_owner.lineage", index=True)
    made_by: str = Field(default="", index=True)
    name: str
    criteria: bytes
    least_score: float = Field(index=True)
    following: str | None = None
    made_at: datetime = Field(sa_type=Moment)
    webhook_id: str | None = Field(default=None, foreign_key="target.id", index=True)
    email_id: str | None = Field(default=None, foreign_key="target.id", index=True)
    known: bytes = b""
    needs_baseline: bool = True
    nvd_complete: bool = False
    told: int = 0
    last_news_at: datetime | None = Field(default=None, sa_type=Moment)
    stopped_at: datetime | None = Field(default=None, sa_type=Moment)


class WatchLine(Tables, table=True):
    """A line of the report that a watch follows: a CVE, or another id that nobody resolves yet, with its package and version.

    Nothing else of the report is stored. `exposed` is what was said of its place; the others are what was last known of its CVE.
    """

    __tablename__ = "watch_line"

    watch_id: str = Field(primary_key=True, foreign_key="watch.id", ondelete="CASCADE")
    place: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    id: str
    package: str
    version: str
    exposed: str
    kev: bool
    ransomware: bool
    due: date | None = None
    likely: bool
    fix: bool
    urgency: str | None = None


class WatchNews(Tables, table=True):
    """The CVEs of one list that newly match one watch: how many, and their entries as JSON, compressed.

    `number` is the place in the order of all news. A number is never reused, because callers ask for the news after a given one.
    """

    __tablename__ = "watch_news"
    __table_args__ = ({"sqlite_autoincrement": True},)

    number: int | None = Field(default=None, primary_key=True)
    watch_id: str = Field(foreign_key="watch.id", index=True, ondelete="CASCADE")
    day: date
    at: datetime = Field(sa_type=Moment, index=True)
    found: int
    entries: bytes


class Alert(WaitingAlert, Tables, table=True):
    """A message that was not delivered to its target yet: news of a watch; or, without `watch_id`, a notice that watches are paused."""

    watch_id: str | None = Field(default=None, foreign_key="watch.id", ondelete="CASCADE", index=True)
    news: int | None = Field(default=None, foreign_key="watch_news.number", ondelete="CASCADE", index=True)


class ArchivedForecast(Tables, table=True):
    """The forecast of one day, kept for ever: its JSON as published."""

    __tablename__ = "archived_forecast"

    day: date = Field(primary_key=True)
    made_at: datetime = Field(sa_type=UtcDateTime)
    forecast: str


class RankingOrder(Tables, table=True):
    """One ranking of one day for its grading: CVE numbers in order, as JSON; only the names that count when `grade` (JSON) is final.

    The first `leading` of them were on the list; `total` CVEs were ranked.
    """

    __tablename__ = "ranking_order"

    day: date = Field(primary_key=True)
    ranking: str = Field(primary_key=True)
    leading: int
    total: int
    numbers: str
    grade: str | None = None
    is_final: bool


class RansomwareFlip(Tables, table=True):
    """A CVE that KEV tied to ransomware after it had listed it; `day` is that of the first list that shows it."""

    __tablename__ = "ransomware_flip"

    cve_id: str = Field(primary_key=True)
    day: date = Field(primary_key=True)


class EpssDay(Tables, table=True):
    """A day whose EPSS is known, and the model that it is of."""

    __tablename__ = "epss_day"

    day: date = Field(primary_key=True)
    model: str


class EpssChange(Tables, table=True):
    """The EPSS of a CVE from one day on until the next change; null where it has none any more."""

    __tablename__ = "epss_change"
    __table_args__ = ({"sqlite_with_rowid": False},)

    number: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    day: date = Field(primary_key=True, index=True)
    epss: float | None = None


class GradedRecord(Tables, table=True):
    """The public record of all grades, in one row: its JSON. `version` changes with it."""

    __tablename__ = "graded_record"

    id: int = Field(default=LATEST, primary_key=True)
    version: str
    record: str


# the tables for SQL: WATCHES.c.lineage is typed as a column, which WatchRow.lineage is not
_BY_NAME = Tables.metadata.tables
WATCH_OWNERS, WATCHES, WATCH_NEWS, TARGETS, ALERTS = (_BY_NAME[name] for name in ("watch_owner", "watch", "watch_news", "target", "alert"))
WATCH_LINES, ALIASES = (_BY_NAME[name] for name in ("watch_line", "alias"))
RANKED, CVES, DETAILS, PRODUCTS, WEAKNESSES = (_BY_NAME[name] for name in ("ranked", "cve", "cve_detail", "cve_product", "cve_weakness"))
BRIEFS, EDITION_CVES, KEV_CHANGES, EPSS_CHANGES, EPSS_DAYS = (
    _BY_NAME[name] for name in ("brief_edition", "edition_cve", "kev_change", "epss_change", "epss_day")
)
OUTBOX = Outbox(Target, Alert, about="watch_id")
