"""The fixtures of the recorder's tests: a recorder in a test campus, a TLS receiver for its webhooks, and a mailbox."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from patience import patience
from recorder.receivers import Authority, Mailbox, Receiver, make_authority, open_mailbox, open_receiver
from recorder.recorders import OpenRecorder, Recorder

from buildings.recorder import building
from campus.app import assemble
from campus.asgi import open_app
from campus.config import config_model
from campus.outbound.http_clients import EXCHANGE_SECONDS, GuardedClient, guarded_client
from campus.testing import ORIGIN, Built, Clock, Frame, TestCampus
from tests import patient

NOON = datetime(2026, 8, 21, 12, 0, tzinfo=UTC)
PRODUCTS = {name: {"scope": name, "price": "19", "term": "30 days"} for name in ("recorder", "cve", "all")}


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that signed the receiver's certificate."""
    return make_authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
async def receiver(authority: Authority) -> AsyncIterator[Receiver]:
    async with open_receiver(authority) as served:
        yield served


@pytest.fixture
async def mailbox() -> AsyncIterator[Mailbox]:
    async with open_mailbox() as box:
        yield box


@pytest.fixture
def open_recorder(authority: Authority) -> OpenRecorder:
    @asynccontextmanager
    async def opened(
        frame: Frame = "http",
        *,
        storage: str = "sqlite:data",
        clock: Clock | None = None,
        mailbox: Mailbox | None = None,
        settings: Mapping[str, Any] | None = None,
        web: GuardedClient | None = None,
        tables: Mapping[str, Any] | None = None,
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
                installed = [Built("recorder", building)]
                campus = await stack.enter_async_context(
                    assemble(config, exclusive=False, clock=clock, elapsed=clock.elapsed, installed=installed, web=web)
                )
                app = await stack.enter_async_context(open_app(campus))
                http = await stack.enter_async_context(patient.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN))
                yield Recorder(TestCampus(campus, app, http, frame, "recorder"), clock)

    return opened


@pytest.fixture
async def recorder(open_recorder: OpenRecorder) -> AsyncIterator[Recorder]:
    async with open_recorder() as opened:
        yield opened


@pytest.fixture
async def on_each_database(open_recorder: OpenRecorder, storage_url: str) -> AsyncIterator[Recorder]:
    async with open_recorder(storage=storage_url) as opened:
        yield opened


@pytest.fixture(params=["http", "mcp"])
async def over_each_frame(request: pytest.FixtureRequest, open_recorder: OpenRecorder) -> AsyncIterator[Recorder]:
    async with open_recorder(request.param) as opened:
        yield opened
