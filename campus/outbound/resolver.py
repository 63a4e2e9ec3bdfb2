"""Looks names up in its own threads, so that a name server that never answers delays no other work."""

import socket
from collections.abc import Callable, Sequence
from threading import BoundedSemaphore

import anyio
from anyio import CapacityLimiter, to_thread

Resolve = Callable[[str, int], Sequence[str]]
"""From host and port to addresses; it blocks, and raises OSError if there are none."""

LOOKUP_SECONDS = 5.0
AT_ONCE = 16
ABANDONED = 4
"""A lookup that timed out cannot be stopped and keeps its thread: there may be this many times `at_once` threads in all."""


def system_resolver(host: str, port: int) -> Sequence[str]:
    """The addresses that the operating system's resolver returns."""
    return [str(place[0]) for *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class Resolver:
    """Looks up at most `at_once` names at once, each for at most `seconds`."""

    def __init__(
        self, resolve: Resolve = system_resolver, *, seconds: float = LOOKUP_SECONDS, at_once: int = AT_ONCE, threads: int | None = None
    ) -> None:
        self._resolve = resolve
        self._seconds = seconds
        self._limiter = CapacityLimiter(at_once)
        self._threads = BoundedSemaphore(threads or at_once * ABANDONED)

    def apart(self, *, at_once: int = AT_ONCE) -> "Resolver":
        """The same, with its own threads."""
        return Resolver(self._resolve, seconds=self._seconds, at_once=at_once)

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """All addresses of a host, from one lookup; raises OSError if there are none, and TimeoutError after `seconds`."""
        with anyio.fail_after(self._seconds):
            found = await to_thread.run_sync(self._in_a_thread, host, port, limiter=self._limiter, abandon_on_cancel=True)
        if not found:
            raise OSError(f"{host} has no address")
        return found

    def _in_a_thread(self, host: str, port: int) -> Sequence[str]:
        if not self._threads.acquire(blocking=False):
            raise OSError("too many lookups get no answer")
        try:
            return self._resolve(host, port)
        finally:
            self._threads.release()
