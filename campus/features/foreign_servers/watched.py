"""A server outside this process: whether it can be reached, why it cannot be served, and whether what it offers has changed."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf

import anyio

from campus.backoff import RECONNECTS
from campus.errors import CampusError, Unreachable
from campus.observability.logs import redacted

PROBE_SECONDS = 60.0
"""How long a later attempt waits: a command may have to download itself first."""
BETWEEN_PROBES = 15.0
ANSWER_MILLISECONDS = 120_000
"""How long an answer may take where `timeout` says nothing; in milliseconds, as in clients' configurations."""
log = logging.getLogger(__name__)


class Upstream:
    """Behind what is mirrored: how much and how long it may answer, and who notes whether it does. As it is, one in this process."""

    subject = "a server of the SDK"
    answer_limit: float = inf
    seconds: float | None = None

    def mark_unreachable(self, error: BaseException) -> None:
        """Note that it did not answer."""

    def mark_reachable(self) -> None:
        """Note that it answered."""


class WatchedServer(Upstream, ABC):
    """One outside, and whether it answered the last time. `address` is where it is, without parts that may be secret."""

    between = BETWEEN_PROBES
    """Seconds from one probe to the next while it answers."""
    is_probed = True

    def __init__(self, name: str, address: str, *, answer_limit: int, milliseconds: int | None) -> None:
        self.name = name
        self.address = address
        self.subject = f"building {name!r}: {address}"
        self.answer_limit = answer_limit
        self.seconds: float = (milliseconds or ANSWER_MILLISECONDS) / 1000
        self.failure: str | None = None
        self._fails = anyio.Event()
        self.rejection: str | None = None
        """Why its tools cannot be served although it answers."""

    @abstractmethod
    async def refresh(self) -> None:
        """Ask what it offers, and keep that. LoadError for what cannot be served."""

    @abstractmethod
    async def has_changed(self) -> bool:
        """True if it offers something else by now than was kept."""

    def findings(self) -> Sequence[str]:
        found = [f"{self.address} cannot be reached ({self.failure}{self._last_words()}); campus keeps trying"] if self.failure else []
        return [*found, *([self.rejection] if self.rejection else [])]

    def _last_words(self) -> str:
        return ""

    def reject(self, error: Exception) -> str:
        foreseen = isinstance(error, CampusError)
        fault = f"its tools cannot be served ({type(error).__name__}); the log has the cause"
        reason = str(error) if foreseen else f"building {self.name!r}: {fault}"
        if reason != self.rejection:
            cause = None if foreseen else error
            log.error("building cannot be opened", exc_info=cause, extra={"building": self.name, "reason": str(error)[:1_000]})
        self.rejection = reason
        return reason

    def mark_unreachable(self, error: BaseException) -> None:
        if self.failure is None:
            log.warning("server cannot be reached", extra={"building": self.name, "address": self.address})
        self.failure = reason_of(error)
        self._fails.set()

    def mark_reachable(self) -> None:
        if self.failure is not None:
            log.info("server answers again", extra={"building": self.name, "address": self.address})
            self._fails = anyio.Event()
        self.failure = None

    async def open(self, *, seconds: float) -> None:
        try:
            with anyio.fail_after(seconds):
                await self.refresh()
        except CampusError:
            self.mark_reachable()
            raise
        except Exception as error:  # transports may raise any exception of their libraries
            self.mark_unreachable(error)
            raise Unreachable(f"{self.subject} cannot be reached ({self.failure}{self._last_words()})") from error
        self.mark_reachable()

    async def changed(self) -> None:
        """Probe it from time to time, until it lists other tools than when it was opened."""
        failures = 1
        while True:
            if self.failure:
                await RECONNECTS.sleep(failures)
            else:
                with anyio.move_on_after(self.between):
                    await self._fails.wait()
            if self.failure or self.is_probed:
                try:
                    with anyio.fail_after(PROBE_SECONDS):
                        has_changed = await self.has_changed()
                    self.mark_reachable()
                    if has_changed:
                        return
                except CampusError as error:
                    self.mark_reachable()
                    self.reject(error)
                except Exception as error:  # as above
                    self.mark_unreachable(error)
            failures = failures + 1 if self.failure else 1


def reason_of(error: BaseException) -> str:
    """Why, in a few words: the innermost of nested errors."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = redacted(" ".join(str(error)[:2_000].split())).rpartition("Client failed to connect: ")[2]
    return (text or type(error).__name__)[:200]
