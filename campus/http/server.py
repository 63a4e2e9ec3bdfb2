"""Serving: bind the address, or take systemd's socket, then run uvicorn on it until it is told to stop; running calls are finished."""

import errno
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import FrameType

import anyio
import anyio.lowlevel
import uvicorn
from starlette.types import ASGIApp

from campus.addresses import LOOPBACK_PROXIES, Listen
from campus.errors import ServeError
from campus.http.hosts import Proxies
from campus.http.protocol import CONNECTIONS, CONNECTIONS_PER_ADDRESS, LimitedProtocol, of_listener, with_limits
from campus.http.uvicorn_names import missing_names
from campus.observability.metrics import RequestMetrics

log = logging.getLogger(__name__)

BACKLOG = 2_048
FIRST_INHERITED = 3
GRACE_SECONDS = 10
KEEP_ALIVE_SECONDS = 15
OTHER_FILES = 256  # databases, logs, feeds, alerts: files of the process that are no connections
LEAST_OTHER_FILES = 128  # what the four buildings open on SQLite, and some
LEAST_CONNECTIONS = 64
STALLED_MILLISECONDS = 30_000  # for data that a caller does not read: the kernel would wait for ever


def bind(host: str, port: int, *, key: str = "host and port") -> socket.socket:
    """Listen on the address: callers are queued from now on. ServeError says why when that is impossible.

    A name is resolved, IPv4 first; `::` takes IPv4 too; port 0 takes a free one. `key` names the address in [server].
    """
    try:
        family, _, _, _, address = min(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))
    except (socket.gaierror, UnicodeError):
        raise ServeError(_not_local(host, key)) from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        _limit_unread(listener)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ServeError(_why_unbound(error, Listen(host, port), key)) from None
    return listener


def inherited_listener(environ: Mapping[str, str] = os.environ, *, descriptor: int = FIRST_INHERITED) -> socket.socket | None:
    """The listening socket that systemd has opened for this process, by sd_listen_fds(3); None if there is none.

    It stays open between the end of a process and the start of the next: connections that are made meanwhile wait in it.
    """
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    if (count := environ.get("LISTEN_FDS")) != "1":
        raise ServeError(
            f"systemd passes {count} sockets, and campus takes one: write one ListenStream= into the socket unit;"
            " the operator's listener is opened by campus itself"
        )
    listener = socket.socket(fileno=descriptor)
    listener.set_inheritable(False)
    if listener.type != socket.SOCK_STREAM or listener.family not in (socket.AF_INET, socket.AF_INET6):
        listener.close()
        raise ServeError("systemd passes a socket that is not of TCP; write an address and a port, as in ListenStream=127.0.0.1:8000")
    _limit_unread(listener)
    return listener


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    name: str = "public",
    on_started: Callable[[], None] = lambda: None,
    on_stopping: Callable[[], None] = lambda: None,
    grace_seconds: int = GRACE_SECONDS,
    protocol: type[LimitedProtocol] | None = None,
    takes_signals: bool = True,
    trusted_proxies: Collection[str] = LOOPBACK_PROXIES,
    requests: RequestMetrics | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT, SIGHUP or cancellation; then let running calls finish, for `grace_seconds` at most, and return.

    `name` is what the log calls the listener. Of several servers in one process only one `takes_signals`; cancel the others when it
    has returned. The number of connections per address is limited, except for the addresses and networks of `trusted_proxies`;
    `requests` counts those that are refused.

    Run it on uvloop. No ASGI lifespan is run: open what the app needs around this call.
    """
    if protocol is None:
        allowed = connections_allowed()
        protocol = with_limits(connections_limit=allowed, connections_per_address=min(CONNECTIONS_PER_ADDRESS, allowed // 2))
    missing = missing_names(app)
    if missing:
        log.warning(
            "this uvicorn is not one that campus knows: its own protocol serves, slower, and without a limit on the time for a request's"
            " head or the connections of an address; put a proxy in front",
            extra={"uvicorn": uvicorn.__version__, "missing": " ".join(missing)},
        )
    config = uvicorn.Config(
        app,
        http="h11" if missing else of_listener(protocol, trusted_proxies=Proxies(trusted_proxies), requests=requests),
        h11_max_incomplete_event_size=protocol.head_bytes,  # this and the next are for uvicorn's own protocol
        limit_concurrency=protocol.connections_limit,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",  # it warns of every caller that does not speak HTTP; the access log has those
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the edge reads them
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=grace_seconds,
    )
    server = _Server(config, on_started, on_stopping, takes_signals=takes_signals)
    named = {"listener": name, "url": f"http://{Listen(*listener.getsockname()[:2])}"}
    log.info("serving", extra=named)
    try:
        await server.serve(sockets=[listener])
    except anyio.get_cancelled_exc_class():
        if server.started:
            with anyio.CancelScope(shield=True):
                await server.shutdown(sockets=[listener])
        raise
    finally:
        log.info("stopped", extra=named)


class _Server(uvicorn.Server):
    """Uvicorn's server, which reports when it has started, and whose signals end the serving, not the process."""

    def __init__(
        self, config: uvicorn.Config, on_started: Callable[[], None], on_stopping: Callable[[], None], *, takes_signals: bool
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._on_stopping = on_stopping
        self._takes_signals = takes_signals

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._takes_signals:
            log.info("stopping; running calls are waited for", extra={"longest_seconds": self.config.timeout_graceful_shutdown})
        self._on_stopping()  # before running calls are waited for
        for _ in range(2):  # connections that were made and not yet accepted would be reset with the listening socket
            await anyio.lowlevel.checkpoint()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals() if self._takes_signals else nullcontext():
            if not self._takes_signals or signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as under nohup
                yield
                return
            before = signal.signal(signal.SIGHUP, self.handle_exit)  # a terminal went away
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, before)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Uvicorn's own would raise the signal once more at the end, and nothing that was opened around `serve` would be closed."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def _limit_unread(listener: socket.socket) -> None:
    """Limit how long a caller may leave data unread, on Linux; accepted connections inherit it."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_MILLISECONDS)


def connections_allowed() -> int:
    """How many connections the process may hold, by the files that it may open. ServeError if those are too few to serve with."""
    files = _files_allowed()
    if files < LEAST_OTHER_FILES + LEAST_CONNECTIONS:
        raise ServeError(
            f"this process may open {files} files, and needs {LEAST_OTHER_FILES + LEAST_CONNECTIONS}, or {CONNECTIONS + OTHER_FILES:,} to"
            " serve all that it can: raise the hard limit, by LimitNOFILE= in a unit of systemd, or ulimit -n"
        )
    return min(CONNECTIONS, files - max(LEAST_OTHER_FILES, min(OTHER_FILES, files // 2)))


def _files_allowed() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + BACKLOG + OTHER_FILES  # a connection that replaces another is open a moment before that one is closed
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return wanted if soft == resource.RLIM_INFINITY else soft


def _why_unbound(error: OSError, address: Listen, key: str) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"port {address.port} on {address.host} is in use by another program;"
                f" stop that one, or set another port under [server], in {key}, or with --{'admin' if key == 'admin' else 'port'}"
            )
        case errno.EACCES:
            return (
                f"port {address.port} may not be opened by this user; set one above 1023 under [server], in {key}, and put a proxy in front"
            )
        case errno.EADDRNOTAVAIL:
            return _not_local(address.host, key)
        case _:
            return f"{address} cannot be served: {error.strerror or error}; see [server], {key}"


def _not_local(host: str, key: str) -> str:
    return (
        f"host {host!r} is not an address of this machine; under [server], in {key},"
        " 127.0.0.1 serves this machine, 0.0.0.0 every IPv4 network, :: IPv6 too"
    )
