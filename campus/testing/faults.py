"""What goes wrong with a facilitator when a test says so: faults that are switched, and points where its calls are held."""

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import anyio.to_thread

from campus.testing.listener import Listener

Operation = Literal["supported", "verify", "settle"]
Point = Literal["verify", "verified", "settle", "settled"]
"""Before and after the work of a call: at `settled` the money has moved, and nobody was told."""
WAIT_SECONDS = 30


@dataclass
class Faults:
    """Switches; each holds until it is set back. None of them: a facilitator that works."""

    listener: Listener = field(repr=False)
    hang_seconds: float = 0
    """How long every answer waits, its work done."""
    hang_on: Collection[Operation] = ("supported", "verify", "settle")
    """Which operations wait."""
    verify_status: int | None = None
    """Answer this instead of verifying."""
    settle_status_before: int | None = None
    """Answer this instead of settling."""
    unsent: Mapping[str, Any] | None = None
    """Send nothing to the chain, and answer this: {"success": True, …}."""
    settle_status: int | None = None
    """Settle, then answer this."""
    lie: Mapping[str, Any] | None = None
    """Settle, then lay these members over the answer: {"network": "eip155:1"}."""
    verify_lie: Mapping[str, Any] | None = None
    """The same for verifying: {"isValid": True}."""
    garbled: Collection[Operation] = ()
    """Which operations answer 200 with a page instead of JSON, their work done."""

    @property
    def down(self) -> bool:
        """Whether connections are refused."""
        return not self.listener.is_open

    @down.setter
    def down(self, down: bool) -> None:
        if down:
            self.listener.close()
        else:
            self.listener.open()

    def clear(self) -> None:
        """Set all switches back."""
        self.down = False
        for each in fields(self):
            if each.name != "listener":
                setattr(self, each.name, each.default)


class Hold:
    """A point where calls wait until the test lets them go, and how many came there."""

    def __init__(self) -> None:
        self.hits = 0
        self._goes_on: bool | None = None
        self._changed = threading.Condition()

    def release(self) -> None:
        """Let all go on, those that come later too, whether or not their callers still live."""
        self._decide(goes_on=True)

    def drop(self) -> None:
        """End the connections of all without work or answer, of those that come later too."""
        self._decide(goes_on=False)

    def wait(self, times: int = 1, *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until so many calls came here. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.hits >= times, seconds):
                raise TimeoutError(f"{self.hits} calls of {times} came to the point in {seconds} s")

    async def reached(self, times: int = 1, *, seconds: float = WAIT_SECONDS) -> None:
        """The same, for a test on an event loop."""
        await anyio.to_thread.run_sync(lambda: self.wait(times, seconds=seconds))

    def passes(self) -> bool:
        """A call comes here: wait; then whether it goes on."""
        with self._changed:
            self.hits += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._goes_on is not None)
            return bool(self._goes_on)

    def _decide(self, *, goes_on: bool) -> None:
        with self._changed:
            if self._goes_on is None:
                self._goes_on = goes_on
                self._changed.notify_all()
