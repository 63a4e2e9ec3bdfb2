"""The arguments and results of the tools for watches, each with its bounds and its description."""

from collections.abc import Iterator
from datetime import date
from typing import Annotated, ClassVar, Literal

from pydantic import AwareDatetime, Field

from buildings.cve.arguments import Exposure
from buildings.cve.models import SEVERITY, WHEN, WHEN_IF_EXPOSED, Place, Result, ResultPart, left_out
from buildings.cve.ranking.deadlines import Deadlines, When
from buildings.cve.ranking.enrichment import Severity
from buildings.cve.search.criteria import CriterionName, Name
from buildings.cve.text_tables import csv_of, document, markdown_table
from campus.features.alerts import CHAT_SERVICES, KINDS, TargetState
from campus.keys.makers import MadeBy

MOST_WATCHES = 20
SHOWN_ENTRIES = 50  # CVEs in one message; the news that are polled have all.

WatchName = Annotated[
    Name, Field(description="Your name for the watch, shown in its news, such as 'edge routers'.", examples=["edge routers"])
]
OptionalName = Annotated[Name | None, Field(description="New name of the watch.")]
Removed = Annotated[list[CriterionName] | None, Field(description="Names of criteria to remove.")]
WatchedExposure = Annotated[
    Exposure | None,
    Field(
        description="Whether the internet reaches what you watch: yes, no or unknown (default). CISA's deadlines in the news depend on it;"
        " with unknown they have both."
    ),
]
Webhook = Annotated[
    str | None,
    Field(
        max_length=2048,
        description="URL that news is sent to: a public https:// address, which receives signed JSON (Standard Webhooks) with a `text` that"
        f" chat services show, or that of {CHAT_SERVICES}.",
    ),
]
Email = Annotated[
    str | None, Field(max_length=254, description="E-mail address that news is sent to; the recipient must first confirm by e-mail.")
]
WatchId = Annotated[str, Field(min_length=1, max_length=64, description="Id of the watch, from create_watch or list_watches.")]
SomeWatchId = Annotated[str | None, Field(min_length=1, max_length=64, description="Id of one watch. Default: all of your key.")]
Since = Annotated[
    int, Field(ge=0, le=2**31 - 1, description="`next` of the last answer, so that you get what came after it. 0: all that is kept.")
]
NewsLimit = Annotated[
    int, Field(ge=1, le=1_000, description="Most CVEs in the answer; an item that alone has more comes whole. `more` says if any are left.")
]
NEWS_COLUMNS = (
    *("number", "watch_id", "name", "day", "rank", "cve_id", "score", "kev_date_added", "kev_due_date", "ransomware", "epss"),
    *("severity", "vendor", "product", "fits"),
)


LeastEpss = Annotated[
    float,
    Field(gt=0, le=1, description="EPSS from which a CVE of the report is news, 0 to 1: the probability that it is exploited in 30 days."),
]


class FollowedReport(ResultPart):
    """How a watch follows a stored report."""

    lines: int = Field(description="Number of its different lines: CVE, or id that nobody resolves yet, package and version.")
    least_epss: float = Field(description="EPSS from which a CVE is news.")


class WatchTarget(ResultPart):
    """Where the news of a watch is sent."""

    kind: str = Field(description=f"How it is sent: {KINDS}.")
    address: str = Field(description="Its address; for a webhook only the host, because the rest may be secret.")
    state: TargetState = Field(
        description="ready: messages are delivered. untested: none was sent there yet. unconfirmed: its owner has not confirmed."
        " failing: being retried. disabled: given up."
    )
    reason: str | None = Field(description="Why messages do not reach it, and what to do; null if they do.")
    undelivered: int = Field(description="Number of this watch's messages that are not delivered to it yet.")


class Watch(ResultPart):
    """One watch of a key."""

    watch_id: str = Field(description="Id, for update_watch and delete_watch.")
    name: str = Field(description="Your name for it.")
    vendors: tuple[str, ...] = Field(description="Vendors that it names.")
    products: tuple[str, ...] = Field(description="Products that it names.")
    cve_ids: tuple[str, ...] = Field(description="CVEs that it names.")
    least_score: float | None = Field(description="Least score that a CVE must have; null if it follows a report.")
    report: FollowedReport | None = left_out("The stored report that it follows. Left out if none.")
    criteria: tuple[str, ...] = Field(description="All its criteria, a sentence for each.")
    exposed: Exposure = Field(description="Whether the internet reaches what it watches, for the deadlines in its news.")
    state: Literal["active", "paused", "stopped"] = Field(
        description="paused: its key has ended, and nothing is told until the key is renewed. stopped: nothing is told, because `made_by`"
        " has ended; call update_watch if you made it or still need it, else delete_watch."
    )
    made_at: AwareDatetime = Field(description="When it was made (UTC).")
    made_by: MadeBy = Field(description="The key or connected client that made it, or changed it last.")
    told: int = Field(description="Number of CVEs that it told of so far.")
    last_news_at: AwareDatetime | None = Field(description="When it last had news (UTC); null if it never had.")
    targets: tuple[WatchTarget, ...] = Field(description="Where its news is sent; none if it is only polled.")


class WatchMade(Watch, Result):
    """A watch that was made or changed."""

    webhook_secret: str | None = Field(
        description="Secret that verifies the messages to the webhook (Standard Webhooks); null without one, and for chat services."
    )
    notes: tuple[str, ...] = Field(
        description="What you should know, such as that a name is not among KEV's, or an address is unconfirmed."
    )


class WatchList(Result):
    """The watches of the calling key."""

    count: int = Field(description="Number of watches that the key owns, at most 20.")
    watches: tuple[Watch, ...] = Field(description="The watches, the oldest first.")


class WatchDeleted(Result):
    """A deleted watch."""

    watch_id: str = Field(description="Id of the deleted watch. Its news and undelivered messages are deleted too.")


class NewsEntry(Place):
    """A CVE that newly fits a watch, as it was on the list that brought it."""

    severity: Severity = Field(description=SEVERITY)
    vendor: str | None = Field(description="Vendor name, from KEV, else from NVD; null if neither has it.")
    product: str | None = Field(description="Product name, from KEV, else from NVD; null if neither has it.")
    when: When = Field(description=f"When to fix it. {WHEN}")
    when_if_exposed: When | None = left_out(WHEN_IF_EXPOSED)
    deadlines: Deadlines = Field(description="By when to fix it after CISA's directive BOD 26-04.")
    fits: tuple[str, ...] = Field(
        description="What of the watch it fits, such as 'vendor Cisco' or 'cve_ids'; empty if it names nothing. Of a stored report: what"
        " is news, such as 'newly in KEV', 'used for ransomware', 'due 2026-12-01 by KEV', 'EPSS of 0.1 or more', 'a fix or advisory' or"
        " 'to fix today'."
    )
    packages: tuple[str, ...] = left_out("Of a stored report: the first 100 packages in which it was found, with versions.", when=())


class News(ResultPart):
    """What newly fitted one watch on one list."""

    number: int = Field(description="Place in the order of all news; it grows.")
    watch_id: str = Field(description="Id of the watch.")
    name: str = Field(description="Name of the watch.")
    day: date = Field(description="Day of the list (UTC).")
    at: AwareDatetime = Field(description="When it was found (UTC).")
    count: int = Field(description="Number of entries.")
    entries: tuple[NewsEntry, ...] = Field(description="The CVEs, in rank order.")


class NewsList(Result):
    """News of a key's watches, in their order."""

    other_formats: ClassVar = {"text/csv": "as_csv", "text/markdown": "as_markdown"}

    count: int = Field(description="Number of items in `news`.")
    news: tuple[News, ...] = Field(description="What newly fitted, the oldest first.")
    next: int = Field(description="Pass it as `since` next time.")
    more: bool = Field(description="True if there is more already: call again now.")

    def as_csv(self) -> str:
        """A row for each CVE; `number` of the last one is the next `since`."""
        return csv_of(NEWS_COLUMNS, self._rows())

    def as_markdown(self) -> str:
        after = f"{'There is more' if self.more else 'That is all'}; next time send since={self.next}."
        return document("# News of your watches", "", *markdown_table(NEWS_COLUMNS, self._rows()), "", after, notices=())

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for news in self.news:
            for one in news.entries:
                about = news.number, news.watch_id, news.name, news.day
                yield (*about, *(getattr(one, name) for name in NEWS_COLUMNS[4:-1]), ", ".join(one.fits))
