"""Faults of the test facilitator: switches, and points where a test holds calls."""

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import anyio.to_thread

from campus.testing.listener import Listener

Operation = Literal["supported", "verify", "settle"]
Point = Literal["verify", "verified", "settle", "settled"]
"""Before and after the work of a call. At `settled` the transfer is on the chain, and the caller has no answer yet."""
WAIT_SECONDS = 30


@dataclass
class Faults:
    """Switches; each stays on until it is reset. Without any, the facilitator works."""

    listener: Listener = field(repr=False)
    hang_seconds: float = 0
    """How long every answer is delayed after its work is done."""
    hang_on: Collection[Operation] = ("supported", "verify", "settle")
    """Which operations are delayed."""
    verify_status: int | None = None
    """Answer this status instead of verifying."""
    settle_status_before: int | None = None
    """Answer this status instead of settling."""
    unsent: Mapping[str, Any] | None = None
    """Submit nothing to the chain, and answer this: {"success": True, …}."""
    settle_status: int | None = None
    """Settle, then answer this status."""
    lie: Mapping[str, Any] | None = None
    """Settle, then override these members of the answer: {"network": "eip155:1"}."""
    verify_lie: Mapping[str, Any] | None = None
    """The same for verifying: {"isValid": True}."""
    garbled: Collection[Operation] = ()
    """Which operations do their work and then answer 200 with an HTML page instead of JSON."""

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
        """Reset all switches."""
        self.down = False
        for each in fields(self):
            if each.name != "listener":
                setattr(self, each.name, each.default)


class Hold:
    """A point where calls wait until the test releases them. `hits` counts the calls that reached it."""

    def __init__(self) -> None:
        self.hits = 0
        self._continues: bool | None = None
        self._changed = threading.Condition()

    def release(self) -> None:
        """Let all calls continue, also later ones, whether or not their callers are still there."""
        self._decide(continues=True)

    def drop(self) -> None:
        """Close the connections of all calls, also later ones, without doing their work."""
        self._decide(continues=False)

    def wait(self, times: int = 1, *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until so many calls have reached the point. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.hits >= times, seconds):
                raise TimeoutError(f"{self.hits} of {times} calls reached the point in {seconds} s")

    async def reached(self, times: int = 1, *, seconds: float = WAIT_SECONDS) -> None:
        """The same, for a test on an event loop."""
        await anyio.to_thread.run_sync(lambda: self.wait(times, seconds=seconds))

    def passes(self) -> bool:
        """Wait at the point; then return whether the call continues."""
        with self._changed:
            self.hits += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._continues is not None)
            return bool(self._continues)

    def _decide(self, *, continues: bool) -> None:
        with self._changed:
            if self._continues is None:
                self._continues = continues
                self._changed.notify_all()
