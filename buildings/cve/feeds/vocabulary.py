"""Words of a feed that no list of ours has: a new member, value, directive, form of a date or scheme of names.

Parsers collect them and use what they can; each is told to the operator once, with what it was taken for.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from sqlmodel import col, select

from buildings.cve.tables import UnknownWord
from campus.storage import Storage

log = logging.getLogger(__name__)

LONGEST_WORD = 80
MOST_WORDS = 100
"""How many of one feed are kept: a feed in which every value is new is another feed."""
NEWS_FOR = timedelta(days=7)
"""So long `campus check` says that a word is new; the operator's pages go on naming it."""


@dataclass
class Words:
    """The unknown words of one issue: how often each occurs, by its kind, and what it was taken for."""

    counts: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def add(self, kind: str, word: object, *, taken_as: str) -> None:
        key = kind, shown(word), taken_as
        if key in self.counts or len(self.counts) < MOST_WORDS:
            self.counts[key] = self.counts.get(key, 0) + 1

    def members(self, value: Mapping[str, Any], known: Set[str], *, of: str) -> None:
        """Add the members of an object that are not known."""
        for name in value.keys() - known:
            self.add(f"member of {of}", name, taken_as="ignored")

    def values(self, values: Iterable[str], known: Set[str], *, of: str, taken_as: str) -> None:
        for value in values:
            if value not in known:
                self.add(f"value of {of}", value, taken_as=taken_as)


def shown(word: object) -> str:
    text = word if isinstance(word, str) else repr(word)
    return " ".join(re.sub(r"[^\x20-\x7e\xa1-\uffff]", "?", text).split())[:LONGEST_WORD]


def form_of(text: object) -> str:
    """The form of a date or an identifier: digits as 9, so that each form is one word."""
    return re.sub(r"[0-9]", "9", shown(text))


async def note_words(storage: Storage, feed: str, words: Words, *, today: date) -> None:
    """Store the unknown words of an issue, and log those that are new."""
    if not words.counts:
        return
    fresh: list[UnknownWord] = []
    async with storage.write() as session:
        rows = await session.exec(select(UnknownWord).where(col(UnknownWord.feed) == feed))
        stored = {(row.kind, row.word): row for row in rows}
        for (kind, word, taken_as), count in words.counts.items():
            if row := stored.get((kind, word)):
                row.taken_as, row.count, row.last_day = taken_as, count, today
            elif len(stored) + len(fresh) < MOST_WORDS:
                fresh.append(UnknownWord(feed=feed, kind=kind, word=word, taken_as=taken_as, count=count, first_day=today, last_day=today))
        session.add_all(fresh)
        told = [sentence_of(row) for row in fresh]
    for sentence in told:
        log.warning("a feed uses a word that is not known", extra={"word": sentence})


async def unknown_words(storage: Storage) -> list[UnknownWord]:
    """All that were seen, the newest first."""
    order = (col(UnknownWord.first_day).desc(), *(col(column) for column in (UnknownWord.feed, UnknownWord.kind, UnknownWord.word)))
    async with storage.read() as session:
        return list(await session.exec(select(UnknownWord).order_by(*order)))


def sentence_of(row: UnknownWord) -> str:
    times = f"{row.count:,} times" if row.count > 1 else "once"
    return f"{row.feed} uses a {row.kind} that is not known, {row.word!r}, {times}, since {row.first_day}: {row.taken_as}"
