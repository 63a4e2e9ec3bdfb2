"""The CVE building's tables: the latest list, the briefs and forecasts of every day, what grades them, NVD's records, the feeds' states."""

from datetime import date, datetime

from sqlalchemy import BigInteger
from sqlmodel import Field, SQLModel

from campus import UtcDateTime, registry

LATEST = 1


class Tables(SQLModel, registry=registry()):
    """Base of the building's tables."""


class LatestList(Tables, table=True):
    """The list that is served, in one row. `version` changes with it and with the archive; `facts` is compressed."""

    __tablename__ = "latest_list"

    id: int = Field(default=LATEST, primary_key=True)
    version: str
    day: date
    made_at: datetime = Field(sa_type=UtcDateTime)
    ranked: bytes
    facts: bytes


class BriefEdition(Tables, table=True):
    """The brief of one day as published, kept for ever: its JSON, compressed. Edition 1 is the first, later ones correct it."""

    __tablename__ = "brief_edition"

    day: date = Field(primary_key=True)
    edition: int = Field(primary_key=True)
    made_at: datetime = Field(sa_type=UtcDateTime)
    brief: bytes


class EditionSet(Tables, table=True):
    """KEV, and the EPSS and ranks of CVEs in it or removed from it, on the day of a brief's edition; both parts compressed.

    `kev` is whole, or what is different from that of the edition `base_edition` of `base_day`.
    """

    __tablename__ = "edition_set"

    day: date = Field(primary_key=True)
    edition: int = Field(primary_key=True)
    base_day: date | None = None
    base_edition: int | None = None
    ranked: bytes
    kev: bytes


class NvdRecordPage(Tables, table=True):
    """NVD's records of 1,024 consecutive CVE numbers, packed; `version` is that of the state when it last changed."""

    __tablename__ = "nvd_page"

    page: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    version: int = Field(index=True)
    records: bytes


class NvdState(Tables, table=True):
    """How far NVD was read, in one row; `version` changes with the records. `position` is JSON, None for a file."""

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


class FeedUrl(Tables, table=True):
    """An address of the full list's feeds, made by the owner of a key. Its secret is stored as a digest."""

    __tablename__ = "feed_url"

    id: str = Field(primary_key=True)
    digest: bytes = Field(unique=True)
    lineage: str = Field(index=True)
    label: str
    made_at: datetime = Field(sa_type=UtcDateTime)


class ArchivedForecast(Tables, table=True):
    """The forecast of one day, kept for ever: its JSON as published, compressed."""

    __tablename__ = "archived_forecast"

    day: date = Field(primary_key=True)
    made_at: datetime = Field(sa_type=UtcDateTime)
    forecast: bytes


class RankingOrder(Tables, table=True):
    """One ranking of one day for its grading: CVE numbers in order, compressed, and dropped when the `grade`, JSON, is final.

    The first `leading` of them were on the list; `total` CVEs were ranked.
    """

    __tablename__ = "ranking_order"

    day: date = Field(primary_key=True)
    ranking: str = Field(primary_key=True)
    leading: int
    total: int
    numbers: bytes
    grade: bytes | None = None
    is_final: bool


class RansomwareFlip(Tables, table=True):
    """A CVE that KEV tied to ransomware after it had listed it; `day` is that of the first list that shows it."""

    __tablename__ = "ransomware_flip"

    cve_id: str = Field(primary_key=True)
    day: date = Field(primary_key=True)


class EpssDay(Tables, table=True):
    """A past day of EPSS: its scores are stored as what differs from those of `next_day`, or whole, where that is null."""

    __tablename__ = "epss_day"

    day: date = Field(primary_key=True)
    model: str
    next_day: date | None = None


class EpssBlock(Tables, table=True):
    """An eighth of what is stored of a day of EPSS, by CVE number; epss_history.py has its form."""

    __tablename__ = "epss_block"

    day: date = Field(primary_key=True)
    block: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    scores: bytes


class GradedRecord(Tables, table=True):
    """The public record of all grades, in one row: its JSON, compressed. `version` changes with it."""

    __tablename__ = "graded_record"

    id: int = Field(default=LATEST, primary_key=True)
    version: str
    record: bytes
