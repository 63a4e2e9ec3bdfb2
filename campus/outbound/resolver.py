"""Looking a name up, once, in threads of its own: a name server that never answers holds up nothing else."""

import socket
from collections.abc import Callable, Sequence
from threading import BoundedSemaphore

import anyio
from anyio import CapacityLimiter, to_thread

Resolve = Callable[[str, int], Sequence[str]]
"""Host and port to addresses, blocking; OSError when there are none."""

LOOKUP_SECONDS = 5.0
AT_ONCE = 16
ABANDONED = 4
"""So many times as many threads there may be with those that nobody waits for any more: a system's lookup cannot be stopped."""


def system_resolver(host: str, port: int) -> Sequence[str]:
    """What the machine's own resolver says."""
    return [str(place[0]) for *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class Resolver:
    """Addresses by name."""

    def __init__(
        self, resolve: Resolve = system_resolver, *, seconds: float = LOOKUP_SECONDS, at_once: int = AT_ONCE, threads: int | None = None
    ) -> None:
        self._resolve = resolve
        self._seconds = seconds
        self._limiter = CapacityLimiter(at_once)
        self._threads = BoundedSemaphore(threads or at_once * ABANDONED)

    def apart(self, *, at_once: int = AT_ONCE) -> "Resolver":
        """The same, in other threads."""
        return Resolver(self._resolve, seconds=self._seconds, at_once=at_once)

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """All of them, from one lookup; OSError (a TimeoutError after 5 s) when there are none."""
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
