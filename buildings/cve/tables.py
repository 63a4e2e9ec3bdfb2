"""What is stored: the latest list whole, every day's brief and its leading part, and the state of each feed."""

from datetime import date, datetime

from sqlmodel import Field, SQLModel

from campus import UtcDateTime, registry

LATEST = 1


class Tables(SQLModel, registry=registry()):
    """Base of the building's tables."""


class LatestList(Tables, table=True):
    """The list on show: one row; `version` changes whenever anything here or in the archive does. Of its parts `facts` is compressed."""

    __tablename__ = "latest_list"

    id: int = Field(default=LATEST, primary_key=True)
    version: str
    day: date
    made_at: datetime = Field(sa_type=UtcDateTime)
    ranked: bytes
    facts: bytes


class ArchivedBrief(Tables, table=True):
    """The brief of one day, for ever: its JSON as it was published, compressed."""

    __tablename__ = "archived_brief"

    day: date = Field(primary_key=True)
    made_at: datetime = Field(sa_type=UtcDateTime)
    brief: bytes


class ArchivedSet(Tables, table=True):
    """The leading part of one day's ranked set: KEV, and what EPSS gave 0.1 or more; both parts compressed."""

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
