"""Whose turn it is: shares of what is under way, and the pace at which hosts are sent to. Pure; one for each process."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from buildings.recorder.delivery.pace import Pace
from buildings.recorder.delivery.shares import Health, Lane, UnderWay


class Turns:
    """Says which lanes begin, and is told when they end."""

    def __init__(self, under_way: UnderWay, pace: Pace) -> None:
        self.under_way = under_way
        self._pace = pace

    def choose(self, waiting: Sequence[Lane], health: Health, now: datetime) -> tuple[list[Lane], dict[str, datetime]]:
        """Of lanes of one kind those that begin now, counted as begun; and by id when the others are to be looked at that must wait."""
        later: dict[str, datetime] = {}

        def may_begin(lane: Lane) -> bool:
            if (at := self._pace.begin(lane, now)) is not None:
                later[lane.target_id] = at
            return at is None

        return self.under_way.choose(waiting, health, may_begin=may_begin), later

    def doubted(self, now: datetime) -> list[str]:
        """Senders whose new targets come after those of others."""
        return self._pace.doubted(now)

    def is_short(self, health: Health) -> bool:
        """Whether less than half of a kind's room is left, so that others may have to wait."""
        return self.under_way.free(health) < self.under_way.shares.of(health) / 2

    def give_back(self, lanes: Iterable[Lane]) -> None:
        """Nothing was sent to these after all."""
        for lane in lanes:
            self.under_way.end(lane)

    def note(self, lane: Lane, now: datetime, *, taken: bool) -> bool:
        """Whether a message was taken; True when its host is open again to its sender, whose other lanes need not wait."""
        return self._pace.note(lane, now, taken=taken)

    def end(self, lane: Lane) -> None:
        """A delivery is over."""
        self.under_way.end(lane)
