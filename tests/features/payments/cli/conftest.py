"""`campus ledger …` in this process, against a campus.toml that takes payments."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from commands import Command, command_of
from features.payments.seller import made_storage
from serving import free_port, write_config

from campus.features.payments.tables import LedgerRow
from campus.storage.databases import Databases

BASE = "eip155:8453"
OWN = "0x" + "cC" * 20
CONFIG = f"""
openapi = "gateway"
[payments]
network = "{BASE}"
pay_to = "0x{"11" * 20}"
facilitators = ["http://127.0.0.1:9"]
rpc_url = "http://127.0.0.1:9"
own_wallets = ["{OWN}"]
[buildings.gateway]
path = "/"
"""


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return command_of(capsys)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path, CONFIG, port=free_port())


@pytest.fixture
def ledger(config: Path, command: Command) -> Command:
    return lambda *words: command("ledger", *words, "--config", str(config))


@pytest.fixture
def write(config: Path) -> Callable[..., None]:
    async def written(entries: tuple[LedgerRow, ...]) -> None:
        async with Databases.open("sqlite:data", folder=config.parent) as databases:
            storage = await made_storage(databases)
            async with storage.write() as session:
                session.add_all(entries)

    return lambda *entries: anyio.run(written, entries)
