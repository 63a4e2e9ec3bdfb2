"""A beat as it arrives, with its status; and the history of a monitor's last 20 beats, as bytes. Pure."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from buildings.recorder.capsule import Unstored
from buildings.recorder.state_machine import Event

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
"""A number times this is a span at a third of the cost of timedelta(microseconds=number)."""

Word = Literal["ok", "start", "fail"]
Status = Word | int
"""A word, or an exit code from 0 to 255."""

BEATS_IN_HISTORY = 20
MILLISECOND = timedelta(milliseconds=1)
WORDS: dict[int, Word] = {-1: "ok", -2: "start", -3: "fail"}
NUMBERS: dict[Status, int] = {word: number for number, word in WORDS.items()}
ENTRY = struct.Struct("<qhi")
OLDER_BYTES = ENTRY.size * (BEATS_IN_HISTORY - 1)
"""The part of a history that stays when a beat is added."""
NO_RUN, LONGEST_RUN = -1, 2**31 - 1


class Beat(NamedTuple):
    """A beat as it arrived. `capsule` is its JSON, or why it cannot be stored."""

    monitor_id: str
    secret_digest: bytes
    at: datetime
    status: Status
    next_in: timedelta | None = None
    capsule: bytes | Unstored | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class PastBeat:
    """A beat in the history: when it arrived, its status, and the duration of the run that it ended."""

    at: datetime
    status: Status
    run: timedelta | None


def event_of(status: Status) -> Event:
    """The event of a status: exit code 0 is ok, any other fail."""
    return status if isinstance(status, str) else "ok" if status == 0 else "fail"


def with_beat(history: bytes, at: datetime, status: Status, run: timedelta | None) -> bytes:
    """The history with one more beat, at most 20 of 14 bytes each."""
    milliseconds = NO_RUN if run is None else min(run // MILLISECOND, LONGEST_RUN)
    return history[-OLDER_BYTES:] + entry_of((at - EPOCH) // MICROSECOND, status, milliseconds)


def entry_of(at: int, status: Status, run: int = NO_RUN) -> bytes:
    """The bytes of one beat: its time in microseconds since 1970, its status, and the run that it ended in milliseconds."""
    return ENTRY.pack(at, NUMBERS.get(status, status), run)


def past_beats(history: bytes) -> Iterator[PastBeat]:
    """The beats in a history, the latest first."""
    for start in range(len(history) - ENTRY.size, -1, -ENTRY.size):
        at, number, run = ENTRY.unpack_from(history, start)
        yield PastBeat(EPOCH + at * MICROSECOND, WORDS.get(number, number), None if run == NO_RUN else run * MILLISECOND)
