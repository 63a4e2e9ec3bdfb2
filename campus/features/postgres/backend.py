"""PostgreSQL: its connections, one schema per building, and the lock by which writers of all processes take turns; nothing is retried."""

import logging
import os
import re
import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from itertools import starmap
from typing import Any, TypeVar
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

import anyio
from anyio.to_thread import run_sync
from sqlalchemy import URL, Connection, ExceptionContext, event, make_url, select, table, text
from sqlalchemy.exc import ArgumentError, DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from campus.errors import StorageError, StorageUnavailable, one_line
from campus.features.postgres.errors import POSTGRES, READ_ONLY, NoPrimary
from campus.storage.backups import Manifest
from campus.storage.errors import BUSY_SECONDS, translate_errors
from campus.storage.migrations import History, Version, place_of
from campus.storage.tables import ENGINE_OPTIONS

R = TypeVar("R")
log = logging.getLogger(__name__)

READERS = 4
"""With the writer that is five connections per building and process: PostgreSQL's 100 are enough for four buildings in five processes."""
LOST_SECONDS = 10
"""How long a server may acknowledge nothing, neither what was sent nor a probe while a statement runs, before its connections end."""
STATEMENT_SECONDS = 30
"""The longest that a statement may take, except for migrations: a server or a proxy before it can acknowledge all and answer nothing."""
WATCH_SECONDS = 2.0  # How often the server that takes writes is asked whether it still does, and how long it may take to answer.
IDLE_SECONDS = 300  # How long a process that hangs within a transaction can keep the building's lock.
READING: Mapping[str, Any] = {
    "pool_size": READERS,
    "isolation_level": "REPEATABLE READ",
    "execution_options": {"postgresql_readonly": True},
}
FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
TLS = ("sslmode", *FILES)
POOLED = "pgbouncer"
PARAMETERS = ("host", "port", *TLS, POOLED)
"""What may follow the database in [storage] url; the names are those of PostgreSQL's own programs, except the last."""
USE_POOLED = f"add {POOLED}=true to [storage] url, or name PostgreSQL's own host and port there"
WITH_TABLES = text("SELECT schemaname, tablename FROM pg_tables WHERE tablename = ANY(:tables) AND schemaname = ANY(:schemas)")

TAKES_NO_WRITES = text("SHOW transaction_read_only")
DURABILITY = text(
    "SELECT current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,"
    " current_setting('synchronous_commit') AS synchronous_commit,"
    " current_setting('synchronous_standby_names') AS synchronous_standby_names, (SELECT count(*) FROM pg_stat_replication) AS standbys"
)
LOSSES = {
    "fsync": "a power cut can destroy the database",
    "full_page_writes": "a power cut can destroy pages of the database",
    "synchronous_commit": "a crash loses the last writes, which callers were told are stored",
}
REPAIR = "turn it on in postgresql.conf, and with ALTER ROLE or ALTER DATABASE where it is set there"


class PostgresConnections:
    """The connections of one building's schema: readers, whose transactions are read-only snapshots, and the writer.

    Every write begins with an advisory lock of the schema, so that writers of all processes take turns, as on SQLite: a value that
    was read cannot change before it is written. The lock costs one more message per transaction, which batch() makes up for. Other
    buildings are not affected. Transactions by row take the lock shared: those of all processes run at once, and none beside a write.
    """

    has_row_locks = True
    errors = POSTGRES

    def __init__(self, url: URL, name: str, hosts: "Hosts", *, description: str) -> None:
        make = partial(_engine, url, name, hosts, description=description, statement_seconds=STATEMENT_SECONDS)
        self.readers = make(**READING)
        # not REPEATABLE READ, whose snapshot would be older than the lock
        self.writer = make(pool_size=1, isolation_level="READ COMMITTED")
        self._by_row = self.writer.execution_options(by_row=True)

        @event.listens_for(self.writer.sync_engine, "begin")
        def take_turn(connection: Connection) -> None:
            connection.exec_driver_sql(_lock_of(name, shared=connection.get_execution_options().get("by_row", False)))

    async def transact(self, work: Callable[[Connection], R], *, by_row: bool = False) -> R:
        async with (self._by_row if by_row else self.writer).connect() as connection:
            result = await connection.run_sync(work)
            await connection.commit()
            return result

    async def close(self) -> None:
        """Close every connection; one whose server does not answer is left to the end of the process."""
        for engine in (self.readers, self.writer):
            with anyio.move_on_after(BUSY_SECONDS / 2):
                await engine.dispose()


class PostgresBackend:
    is_single_process = False

    def __init__(self, url: URL) -> None:
        self._url = url
        self._hosts = Hosts()
        self._place = f"{url.database} at {' or '.join(starmap(_place, hosts_of(url)))}"
        self._server = f"the database {self._place}"

    def describe(self, name: str) -> str:
        return f"the schema {name} of {self._server}"

    def place_of(self, name: str) -> str:
        return f"{self._place}, schema {name}"

    async def versions_of(self, names: Sequence[str]) -> Mapping[str, Version | None]:
        """The newest step that was run of each history, asked over one connection; None when none was."""
        with translate_errors(self._server, POSTGRES, connecting=True):
            return await self._connected(place_of(names[0]).database, partial(self._versions_of, names=names), STATEMENT_SECONDS)

    async def upgrade(self, name: str, history: History) -> None:
        """Run the steps that are due, creating the schema when it is missing; of several processes one does it, the others wait."""
        with translate_errors(self.describe(name), POSTGRES, connecting=True):
            # in a thread with its own event loop, because Alembic blocks while it holds its lock
            await run_sync(anyio.run, self._connected, name, partial(_upgrade, name=name, history=history), None)

    def connections(self, name: str) -> PostgresConnections:
        return PostgresConnections(self._url, name, self._hosts, description=self.describe(name))

    @property
    def has_several_servers(self) -> bool:
        return len(hosts_of(self._url)) > 1

    async def watch(self) -> None:
        """Look which of the hosts takes writes, since a statement on one that hangs waits for 30 seconds."""
        engine = _engine(self._url, "public", self._hosts, description=self._server, statement_seconds=WATCH_SECONDS, pool_size=1)
        try:
            while True:
                await anyio.sleep(WATCH_SECONDS)
                with suppress(Exception):  # of any kind: who reads or writes reports it, and the next connection may be to another host
                    await _look(engine)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(BUSY_SECONDS / 2):
                await engine.dispose()

    async def findings(self) -> Sequence[str]:
        """Settings with which a crash or a failover loses what callers were told is stored; a test write says more where none is taken."""
        with translate_errors(self._server, POSTGRES, connecting=True):
            row = await self._connected("public", lambda connection: connection.execute(DURABILITY).one(), STATEMENT_SECONDS)
        lossy = [f"{name} is off: {loss}; {REPAIR}" for name, loss in LOSSES.items() if row._mapping[name] == "off"]
        if len(hosts_of(self._url)) > 1:
            lossy += _failover_findings(row.synchronous_commit, row.synchronous_standby_names, row.standbys)
        return [f"{self._server}: {sentence}" for sentence in lossy]

    async def backup(self, target: str, *, release: str) -> None:
        command = self._command("pg_dump", "--format=custom", f"--file={target}")
        raise StorageError(f"campus backs up SQLite only; for PostgreSQL run: {command}")

    async def restore(self, source: str, *, accept: Callable[[Manifest], None], replace: bool) -> Manifest:
        command = self._command("pg_restore", "--exit-on-error", "--single-transaction", source)
        raise StorageError(f"campus restores SQLite only; for PostgreSQL stop all processes, make an empty database, and run: {command}")

    def backup_note(self) -> str | None:
        return None

    def _versions_of(self, connection: Connection, *, names: Sequence[str]) -> Mapping[str, Version | None]:
        places = {name: place_of(name) for name in names}
        schemas = {place.database for place in places.values()}
        tables = {place.version_table for place in places.values()}
        there = set(map(tuple, connection.execute(WITH_TABLES, {"schemas": list(schemas), "tables": list(tables)})))
        found: dict[str, Version | None] = dict.fromkeys(names)
        for name, place in places.items():
            if (place.database, place.version_table) in there:
                with translate_errors(self.describe(place.database), POSTGRES):
                    rows = connection.execute(select(text("*")).select_from(table(place.version_table, schema=place.database)))
                    found[name] = Version(row["version_num"], row.get("usable_from")) if (row := rows.mappings().first()) else None
        return found

    def _command(self, *words: str) -> str:
        host, port = hosts_of(self._url)[0]
        options = {"--host": host, "--port": str(port), "--username": self._url.username, "--dbname": self._url.database}
        return shlex.join([*words, *(f"{name}={value}" for name, value in options.items() if value)])

    async def _connected(self, name: str, work: Callable[[Connection], R], statement_seconds: float | None) -> R:
        engine = _engine(self._url, name, Hosts(), description=self._server, statement_seconds=statement_seconds, poolclass=NullPool)
        try:
            async with engine.begin() as connection:
                return await connection.run_sync(work)
        finally:
            await engine.dispose()


def _failover_findings(commit: str, names: str, standbys: int) -> Sequence[str]:
    loss = "a failover may lose what callers were told is stored"
    if not standbys:
        return ["[storage] url names several hosts and no standby is connected: nothing can take over; see the standby's log"]
    if not names:
        return [f"synchronous_standby_names is empty: {loss}; name the standbys there"]
    return [f"synchronous_commit is local: {loss}; set it to on"] if commit == "local" else []


async def _look(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        if await connection.scalar(TAKES_NO_WRITES) == "on":
            await connection.invalidate()


class Hosts:
    """The servers of one database, of which one takes writes: each gets its share of the time, and the last one that did is first.

    All engines of one event loop share it: what one of them learns, the others need not wait for.
    """

    def __init__(self) -> None:
        self._first = 0
        self._connections: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    async def connect(self, *, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Connect to the server that takes writes; one that is away, hangs or is a standby is passed by. Raises why none is left."""
        import asyncpg  # type: ignore[import-untyped]  # SQLAlchemy too loads it only where it connects

        if not isinstance(host, list):
            return await _connect(host=host, port=port, **options)
        refusals: list[Exception] = []
        for index in (*range(self._first, len(host)), *range(self._first)):
            try:
                with anyio.fail_after(options["timeout"] / len(host)):
                    connection = await _connect(host=host[index], port=port[index], **options)
                    is_standby = await _takes_no_writes(connection)
            except (OSError, asyncpg.PostgresError) as error:
                refusals.append(error)
            else:
                if not is_standby:
                    self._lead(index)
                    self._connections[connection] = index
                    return connection
                refusals.append(ConnectionRefusedError(f"{_place(host[index], port[index])} takes no writes: it is a standby"))
        raise next((error for error in refusals if isinstance(error, asyncpg.PostgresError)), NoPrimary(*refusals))

    def _lead(self, index: int) -> None:
        """Let this server be the first, and end the connections to another one: it may hang, and statements on them with it."""
        self._first = index
        if others := [connection for connection, at in self._connections.items() if at != index and not connection.is_closed()]:
            log.warning("another PostgreSQL server takes writes", extra={"place": index + 1, "connections_ended": len(others)})
        for connection in others:
            connection.terminate()


async def _connect(**options: Any) -> Any:
    import asyncpg

    try:
        return await asyncpg.connect(**options)
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" not in str(error):
            raise
        raise StorageError(f"a PgBouncer in between refuses the settings of campus ({error}); {USE_POOLED}") from None


async def _takes_no_writes(connection: Any) -> bool:
    """Ask the server, and end the connection if so: what it reports unasked may be of another one, where a PgBouncer is in between."""
    answer = None
    try:
        answer = await connection.fetchval(TAKES_NO_WRITES.text)
    finally:
        if answer != "off":
            connection.terminate()
    return bool(answer == "on")


def backend(url: str, password: str | None) -> PostgresBackend:
    """Read `postgresql://user@host/database`, `…@host,host/database` or `…/database?host=/socket/directory`."""
    if find_spec("asyncpg") is None:
        raise StorageError("[storage] url names PostgreSQL, which needs a driver: `pip install 'mcp-campus[postgres]'`")
    return PostgresBackend(_read_url(url, password))


def _read_url(url: str, password: str | None) -> URL:
    try:
        parsed = make_url(_with_hosts_apart(url)).set(drivername="postgresql+asyncpg")
        hosts_of(parsed)
    except (ArgumentError, ValueError):
        raise StorageError('[storage] url cannot be read; write it as "postgresql://user@host/database"') from None
    if parsed.password or any("password" in name for name in parsed.query):
        raise StorageError("[storage] url holds a password; set it in the environment, as CAMPUS_DATABASE_PASSWORD")
    if not parsed.database:
        raise StorageError('[storage] url names no database; write it as "postgresql://user@host/database"')
    if unknown := [name for name in parsed.query if name not in PARAMETERS]:
        raise StorageError(f"[storage] url has the parameter {unknown[0]!r}, which is not known; there are: {', '.join(PARAMETERS)}")
    if parsed.query.get(POOLED, "true") != "true":
        raise StorageError(f"[storage] url: {POOLED} can only be true; leave it out where campus connects to PostgreSQL itself")
    for name in FILES:
        if (file := parsed.query.get(name)) and not os.access(str(file), os.R_OK):
            raise StorageError(f"[storage] url: {name} names {file}, which cannot be read")
    return parsed.set(password=password)


def _with_hosts_apart(url: str) -> str:
    """`user@a:5432,b/database` as SQLAlchemy writes it: `user@/database?host=a:5432&host=b:5432`."""
    several = re.fullmatch(r"(\w+://(?:[^@/]*@)?)([^/?]*,[^/?]*)(/[^?]*)?(?:\?(.*))?", url)
    if several is None:
        return url
    before, hosts, database, query = several.groups("")
    each = [f"host={host if re.search(r':[0-9]+$', host) else f'{host}:5432'}" for host in hosts.split(",")]
    return f"{before}{database}?{'&'.join([*each, *filter(None, [query])])}"


def hosts_of(url: URL) -> Sequence[tuple[str | None, int]]:
    """The hosts or socket directories that are tried, with their ports; None for PostgreSQL's usual place. ValueError for a wrong port."""
    found = url.get_dialect()().create_connect_args(url)[1]
    host: Any = found.get("host") or os.environ.get("PGHOST")
    port: Any = found.get("port") or int(os.environ.get("PGPORT", "5432"))
    pairs = list(zip(host, port, strict=True)) if isinstance(host, list) else [(host, port)]
    if any(not 0 < port < 65536 for _, port in pairs):
        raise ValueError("a port is not between 1 and 65535")
    return pairs


def _place(host: str | None, port: int) -> str:
    if host is None:
        return f"its usual socket or localhost:{port}"
    if host.startswith("/"):
        return f"{host.rstrip('/')}/.s.PGSQL.{port}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _engine(url: URL, name: str, hosts: Hosts, *, description: str, statement_seconds: float | None, **options: Any) -> AsyncEngine:
    settings = {
        "application_name": "campus",
        "search_path": f'"{name}"',
        "timezone": "UTC",
        "lock_timeout": f"{BUSY_SECONDS:g}s",
        "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
    }
    is_pooled = POOLED in url.query
    connect: dict[str, Any] = {"timeout": BUSY_SECONDS, "command_timeout": statement_seconds, "async_creator_fn": hosts.connect}
    # a server behind PgBouncer serves one transaction and then another client's: nothing that outlives the transaction is left on it
    connect |= {"statement_cache_size": 0, "prepared_statement_cache_size": 0} if is_pooled else {"server_settings": settings}
    if "pool_size" in options:
        options |= {"max_overflow": 0, "pool_timeout": BUSY_SECONDS}
    # asyncpg takes what concerns TLS, apart from files, as a connection string only
    if tls := urlencode({name: value for name, value in url.query.items() if name in TLS}):
        connect["dsn"] = f"postgresql://?{tls}"
    engine = create_async_engine(url.difference_update_query([*TLS, POOLED]), connect_args=connect, **ENGINE_OPTIONS, **options)
    event.listen(engine.sync_engine, "connect", _give_up_lost_peers)
    if is_pooled:
        event.listen(engine.sync_engine, "begin", partial(_set_for_transaction, settings=settings))
    else:
        event.listen(engine.sync_engine, "connect", partial(_refuse_other_schema, name=name, description=description))
    event.listen(engine.sync_engine, "checkout", _refuse_closed)
    if len(hosts_of(url)) > 1:
        event.listen(engine.sync_engine, "handle_error", _give_up_standby)
    event.listen(engine.sync_engine, "handle_error", partial(_give_up_lost_server, description=description, seconds=statement_seconds))
    return engine


def _refuse_closed(connection: Any, *_: object) -> None:
    """Have the pool replace a connection that the server has closed, as when it restarts: a call on it would fail."""
    if connection.driver_connection.is_closed():
        raise DisconnectionError("the server closed the connection")


def _set_for_transaction(connection: Connection, *, settings: Mapping[str, str]) -> None:
    calls = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
    connection.exec_driver_sql(f"SELECT {calls}")


def _refuse_other_schema(connection: Any, _: object, *, name: str, description: str) -> None:
    """Refuse a connection without the search_path that it asked for: tables of another schema would be read and written."""
    cursor = connection.cursor()
    cursor.execute("SHOW search_path")
    (found,) = cursor.fetchone()
    cursor.close()
    connection.rollback()
    if found.strip('"') != name:
        connection.terminate()
        raise StorageError(
            f"{description} does not use the schema {name} but search_path = {found}: a pooler in between drops the setting, such as a"
            f" PgBouncer with it in ignore_startup_parameters; {USE_POOLED}"
        )


def _give_up_lost_peers(connection: Any, *_: object) -> None:
    """Have Linux end a connection whose server is gone without a word, as in a failover: by itself it waits for 15 minutes."""
    transport = getattr(connection.driver_connection, "_transport", None)  # asyncpg's own; without it Linux's time stays
    peer = transport and transport.get_extra_info("socket")
    if peer and peer.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, LOST_SECONDS)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, LOST_SECONDS)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_SECONDS * 1000)


def _give_up_lost_server(context: ExceptionContext, *, description: str, seconds: float | None) -> StorageUnavailable | None:
    """End a connection that breaks or on which a statement takes too long; what it did is not known. The pool makes its others anew too."""
    error = context.original_exception
    if seconds is None or context.connection is None or not isinstance(error, OSError):
        return None
    context.is_disconnect = True
    if isinstance(error, TimeoutError):
        return StorageUnavailable(f"{description} did not answer within {seconds:g} s; its connection was given up")
    return StorageUnavailable(f"{description} closed the connection ({one_line(error)})")


def _give_up_standby(context: ExceptionContext) -> None:
    """End the connections to a server that takes no writes any more: another one may."""
    if getattr(context.original_exception, "sqlstate", None) == READ_ONLY:
        context.is_disconnect = True


def _lock_of(name: str, *, shared: bool = False) -> str:
    number = int.from_bytes(sha256(f"campus:{name}".encode()).digest()[:8], signed=True)
    return f"SELECT pg_advisory_xact_lock{'_shared' if shared else ''}({number})"


def _upgrade(connection: Connection, *, name: str, history: History) -> None:
    from campus.storage.alembic_runner import upgrade  # 0.2 s, spared when nothing is due

    connection.exec_driver_sql("SET LOCAL lock_timeout = 0")  # another process's migration may take longer
    connection.exec_driver_sql(_lock_of(name))
    connection.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{name}"')
    upgrade(connection, history)
