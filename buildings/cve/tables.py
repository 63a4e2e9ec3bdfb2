"""The CVE building's tables: the latest list, every day's brief with its leading ranks, and the state of each feed."""

from datetime import date, datetime

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


class ArchivedBrief(Tables, table=True):
    """The brief of one day, kept for ever: its JSON as published, compressed."""

    __tablename__ = "archived_brief"

    day: date = Field(primary_key=True)
    made_at: datetime = Field(sa_type=UtcDateTime)
    brief: bytes


class ArchivedSet(Tables, table=True):
    """The leading part of one day's ranked set: KEV, and every CVE with an EPSS of 0.1 or more; both parts compressed."""

    __tablename__ = "archived_set"

    day: date = Field(primary_key=True)
    ranked: bytes
    kev: bytes


class FeedState(Tables, table=True):
    """What the next request to a feed needs to know, and why the last one failed, if it did."""

    __tablename__ = "feed_state"

    name: str = Field(primary_key=True)
    url: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    failed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    failure: str | None = None
