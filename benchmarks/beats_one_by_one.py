"""Baseline of beats: a hand-written Starlette route with an UPDATE and its commit by aiosqlite for each beat.

`beats_one_by_one PORT FILE MODE` makes the file with MONITORS monitors; MODE is SQLite's `synchronous`, NORMAL or FULL.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiosqlite
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.bare_starlette import OrjsonResponse
from benchmarks.baseline_server import listen
from benchmarks.monitors import MONITORS, SECRET, monitor_id
from campus.secrets import digest_of

PERIOD, GRACE = timedelta(hours=1), timedelta(minutes=5)
SCHEMA = """
CREATE TABLE monitor (id TEXT PRIMARY KEY, secret_digest BLOB, last_beat_at REAL, deadline_at REAL, beats INTEGER);
CREATE INDEX due ON monitor (deadline_at);
"""
INSERT = "INSERT INTO monitor VALUES (?, ?, NULL, ?, 0)"
BEAT = "UPDATE monitor SET last_beat_at = ?, deadline_at = ?, beats = beats + 1 WHERE id = ? AND secret_digest = ?"


def app(path: Path, mode: str) -> Starlette:
    """The route, over one connection, since SQLite has one writer. Outside of a transaction each UPDATE commits."""
    connections: list[aiosqlite.Connection] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with aiosqlite.connect(path, isolation_level=None) as connection:
            await connection.execute("PRAGMA journal_mode = WAL")
            await connection.execute(f"PRAGMA synchronous = {mode}")
            await connection.executescript(SCHEMA)
            await connection.execute("BEGIN")
            await connection.executemany(INSERT, ((monitor_id(number), digest_of(SECRET), 2e9) for number in range(MONITORS)))
            await connection.execute("COMMIT")
            connections.append(connection)
            yield

    async def beat(request: Request) -> Response:
        await request.body()
        name = request.path_params["monitor_id"]
        now = datetime.now(UTC)
        deadline = now + PERIOD + GRACE
        values = (now.timestamp(), deadline.timestamp(), name, digest_of(request.path_params["secret"]))
        cursor = await connections[0].execute(BEAT, values)
        if not cursor.rowcount:
            raise HTTPException(404)
        return OrjsonResponse({"ok": True, "monitor_id": name, "state": "alive", "received_at": now, "deadline_at": deadline})

    async def well(request: Request) -> Response:
        return OrjsonResponse({"ok": True})

    beats = Route("/v1/recorder/beat/{monitor_id}/{secret}", beat, methods=["GET", "POST"])
    return Starlette(routes=[beats, Route("/healthz", well)], lifespan=lifespan)


if __name__ == "__main__":
    listen(app(Path(sys.argv[2]), sys.argv[3]), port=int(sys.argv[1]))
