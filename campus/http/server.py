"""Serving: the address is taken first, then uvicorn answers on it until it is told to stop, and finishes what it began."""

import errno
import logging
import resource
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import anyio
import uvicorn
from starlette.types import ASGIApp

from campus.addresses import LOOPBACK_PROXIES, Listen
from campus.errors import ServeError
from campus.http.protocol import CONNECTIONS, GuardedProtocol, guarded, served
from campus.http.proxies import Proxies

log = logging.getLogger(__name__)

BACKLOG = 2_048
GRACE_SECONDS = 10
KEEP_ALIVE_SECONDS = 15
OTHER_FILES = 256  # databases, logs, feeds: what is left of the process's files when all connections are taken
STALLED_MILLISECONDS = 30_000  # for data that a caller does not take: the kernel would wait for ever


def bind(host: str, port: int, *, key: str = "host and port") -> socket.socket:
    """Take the address: callers queue up from now on. ServeError with a sentence when it cannot be taken.

    A name is looked up, IPv4 first; `::` takes IPv4 too; port 0 takes a free one. `key` is what [server] calls the address.
    """
    try:
        family, _, _, _, address = min(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))
    except (socket.gaierror, UnicodeError):
        raise ServeError(_not_ours(host, key)) from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; accepted connections inherit it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_MILLISECONDS)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ServeError(_why_not(error, Listen(host, port), key)) from None
    return listener


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    on_started: Callable[[], None] = lambda: None,
    grace_seconds: int = GRACE_SECONDS,
    protocol: type[GuardedProtocol] | None = None,
    takes_signals: bool = True,
    trusted_proxies: Collection[str] = LOOPBACK_PROXIES,
) -> None:
    """Serve until SIGTERM, SIGINT or cancellation; then let calls finish, for `grace_seconds` at most, and return.

    Of several servers in one process only one `takes_signals`; cancel the others when it has returned. Each address has a
    share of the connections, but for the addresses and networks of `trusted_proxies`.

    Run it on uvloop. No ASGI lifespan is run: what the app needs is opened around this call, and is closed after it.
    """
    protocol = protocol or guarded(connections_limit=min(CONNECTIONS, _files_allowed() - OTHER_FILES))
    config = uvicorn.Config(
        app,
        http=served(protocol, trusted_proxies=Proxies(trusted_proxies)),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",  # it warns of every caller that speaks no HTTP; the access log has those
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the edge reads them
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=grace_seconds,
    )
    server = _Server(config, on_started, takes_signals=takes_signals)
    log.info("serving", extra={"url": f"http://{Listen(*listener.getsockname()[:2])}"})
    try:
        await server.serve(sockets=[listener])
    except anyio.get_cancelled_exc_class():
        if server.started:
            with anyio.CancelScope(shield=True):
                await server.shutdown(sockets=[listener])
        raise
    finally:
        log.info("stopped")


class _Server(uvicorn.Server):
    """Uvicorn's, which tells when it has started, and whose signals end the serving, not the process."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None], *, takes_signals: bool) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._takes_signals = takes_signals

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn raises what it caught once more: then nothing that was opened around it would be closed."""
        if not self._takes_signals:
            yield
            return
        with super().capture_signals():
            yield
            self._captured_signals.clear()


def _files_allowed() -> int:
    """How many files the process may open, once it may open as many as connections can need and the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + BACKLOG + OTHER_FILES  # those that take the place of others are there a moment before these are gone
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return wanted if soft == resource.RLIM_INFINITY else soft


def _why_not(error: OSError, address: Listen, key: str) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"port {address.port} on {address.host} is in use by another program;"
                f" stop that one, or set another port under [server], in {key}"
            )
        case errno.EACCES:
            return (
                f"port {address.port} may not be opened by this user;"
                f" set one above 1023 under [server], in {key}, and let a proxy stand before it"
            )
        case errno.EADDRNOTAVAIL:
            return _not_ours(address.host, key)
        case _:
            return f"{address} cannot be served: {error.strerror or error}; see [server], {key}"


def _not_ours(host: str, key: str) -> str:
    return (
        f"host {host!r} is not an address of this machine; under [server], in {key},"
        " 127.0.0.1 serves this machine, 0.0.0.0 every IPv4 network, :: IPv6 too"
    )
