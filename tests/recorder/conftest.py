"""The fixtures of the recorder's tests: a recorder in a test campus, a TLS receiver for its webhooks, and a mailbox.

Opening a campus takes ten times as long as most tests need, so the tests of a module share one, which each finds as if it were new.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import httpx
import pytest
from patience import patience
from recorder.receivers import Authority, Mailbox, Receiver, make_authority, open_mailbox, open_receiver
from recorder.recorders import OpenRecorder, Recorder, SharedRuntime

from buildings.recorder import building
from campus.app import assemble
from campus.asgi import open_app
from campus.config import config_model
from campus.outbound.http_clients import EXCHANGE_SECONDS, GuardedClient, guarded_client
from campus.testing import ORIGIN, Built, Clock, Frame, TestCampus
from tests import patient
from tests.postgres_server import Postgres

NOON = datetime(2026, 8, 21, 12, 0, tzinfo=UTC)
PRODUCTS = {name: {"scope": name, "price": "19", "term": "30 days"} for name in ("recorder", "cve", "all")}


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    """One event loop for the tests of a module, and for the recorder that they share."""
    return "asyncio"


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that signed the receiver's certificate."""
    return make_authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
async def receiver(authority: Authority) -> AsyncIterator[Receiver]:
    async with open_receiver(authority) as served:
        yield served


@pytest.fixture(scope="module")
async def post_office() -> AsyncIterator[Mailbox]:
    async with open_mailbox() as box:
        yield box


@pytest.fixture
def mailbox(post_office: Mailbox) -> Mailbox:
    post_office.clear()
    return post_office


@asynccontextmanager
async def opened(
    authority: Authority,
    frame: Frame = "http",
    *,
    storage: str = "sqlite:data",
    clock: Clock | None = None,
    mailbox: Mailbox | None = None,
    settings: Mapping[str, Any] | None = None,
    web: GuardedClient | None = None,
    tables: Mapping[str, Any] | None = None,
    runtime: SharedRuntime | None = None,
) -> AsyncIterator[Recorder]:
    clock = clock or Clock(NOON)
    mail = {"mail": {"host": "127.0.0.1", "port": mailbox.port, "sender": "alerts@campus.test", "tls": "none"}} if mailbox else {}
    web = web or guarded_client(ORIGIN, allowed_hosts=["localhost"], trust=authority.client, seconds=patience(EXCHANGE_SECONDS))
    with TemporaryDirectory() as folder:
        config = config_model().model_validate(
            {
                "server": {"public_url": ORIGIN, "openapi": "recorder"},
                "storage": {"url": storage},
                "products": PRODUCTS,
                "buildings": {"recorder": {"registrations_per_minute": 10_000, **(settings or {})}},
                "folder": Path(folder),
                **mail,
                **(tables or {}),
            }
        )
        async with AsyncExitStack() as stack:
            installed = [Built("recorder", replace(building, state=runtime.open) if runtime else building)]
            campus = await stack.enter_async_context(
                assemble(config, exclusive=False, clock=clock, elapsed=clock.elapsed, installed=installed, web=web)
            )
            app = await stack.enter_async_context(open_app(campus))
            http = await stack.enter_async_context(patient.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN))
            yield Recorder(TestCampus(campus, app, http, frame, "recorder"), clock)


@pytest.fixture
def open_recorder(authority: Authority) -> OpenRecorder:
    """Opens a recorder of a test's own: with other settings, beside another, or to be broken."""
    return partial(opened, authority)


@asynccontextmanager
async def as_new(shared: Recorder) -> AsyncIterator[Recorder]:
    """The shared recorder without what earlier tests left: at noon, with empty tables, a new runtime, and a client without cookies."""
    shared.clock.time = NOON
    async with shared.campus.site.state.renewed(), shared.calling_from("127.0.0.1") as recorder:
        yield recorder


@pytest.fixture(scope="module")
async def on_sqlite(authority: Authority) -> AsyncIterator[Recorder]:
    async with opened(authority, runtime=SharedRuntime()) as shared:
        yield shared


@pytest.fixture(scope="module")
async def on_postgresql(authority: Authority, postgres: Postgres) -> AsyncIterator[Recorder]:
    name = postgres.create_database()
    async with opened(authority, storage=postgres.url(name), runtime=SharedRuntime()) as shared:
        yield shared
    postgres.drop_database(name)


@pytest.fixture(scope="module")
async def with_mail(authority: Authority, post_office: Mailbox) -> AsyncIterator[Recorder]:
    async with opened(authority, mailbox=post_office, runtime=SharedRuntime()) as shared:
        yield shared


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" in metafunc.fixturenames and metafunc.definition.get_closest_marker("both_databases"):
        metafunc.parametrize("database", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Recorder:
    """The recorder that is shared on SQLite or PostgreSQL, or among the tests with a mailbox."""
    kind = getattr(request, "param", "sqlite")
    shared: Recorder = request.getfixturevalue("with_mail" if "mailbox" in request.fixturenames else f"on_{kind}")
    return shared


@pytest.fixture
async def recorder(request: pytest.FixtureRequest, database: Recorder) -> AsyncIterator[Recorder]:
    """A recorder as if it were new, called over HTTP, or over each frame if the test uses `frame`."""
    frame = request.getfixturevalue("frame") if "frame" in request.fixturenames else "http"
    async with as_new(database) as recorder:
        yield replace(recorder, campus=replace(recorder.campus, frame=frame))


@pytest.fixture
async def two_processes(on_postgresql: Recorder, open_recorder: OpenRecorder) -> AsyncIterator[tuple[Recorder, Recorder]]:
    """Two recorders on one PostgreSQL database, with one clock."""
    storage = on_postgresql.campus.service.plan.config.storage.url
    async with as_new(on_postgresql) as first, open_recorder(storage=storage, clock=first.clock) as second:
        yield first, second
