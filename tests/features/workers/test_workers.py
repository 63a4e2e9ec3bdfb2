"""campus serve --workers: processes that share one address, and are replaced without a refused call."""

import os
import re
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from fastmcp import Client
from patience import patience
from serving import Served, command, free_port, serving, write_config

from tests import patient
from tests.conftest import Postgres

pytestmark = pytest.mark.anyio
CAMPUS = """
name = "{name}"
openapi = "shop"
[storage]
url = "{storage}"
[limits]
free = "off"
[buildings.shop]
server = "./shop.py"
"""
SHOP = '''
import os
from fastmcp import FastMCP
from campus import free, route

mcp = FastMCP("Shop")

@mcp.tool(meta=route("GET /v1/shop/edition") | free(), annotations={{"readOnlyHint": True}})
async def edition() -> str:
    """The edition of this shop, and the process that answers."""
    return f"{edition} {{os.getpid()}}"
'''
Call = Callable[[], Awaitable[str]]
COUNTED = re.compile(r'campus_requests_total{method="GET",route="/v1/shop/edition",status="200",worker="(\d)"}')


@pytest.fixture
def storage(postgres: Postgres) -> Iterator[str]:
    name = postgres.create_database()
    yield postgres.url(name)
    postgres.drop_database(name)


def write_edition(folder: Path, number: int, storage: str, *, port: int | None = None) -> str:
    (folder / "shop.py").write_text(SHOP.format(edition=number))
    text = CAMPUS.format(name=f"edition {number}", storage=storage)
    if port:
        write_config(folder, text, port=port)
    return text


def processes(served: Served, *, count: int) -> set[str]:
    found: set[str] = set()
    until = time.monotonic() + patience(60)
    with patient.Client(headers={"Connection": "close"}) as client:
        while len(found) < count:
            assert time.monotonic() < until, served.log
            answer = client.get(f"{served.url}/v1/shop/edition")
            assert answer.status_code == 200, answer.text
            found.add(answer.json()["result"].split()[1])
    return found


async def logged(served: Served, sentence: str, *, times: int = 1) -> None:
    with anyio.fail_after(patience(60)):
        while served.log.count(sentence) < times:  # noqa: ASYNC110  # another process writes it
            await anyio.sleep(0.05)


async def test_a_reload_refuses_no_call_and_brings_new_code_and_configuration(tmp_path: Path, storage: str) -> None:
    answers: dict[str, list[str]] = {"kept": [], "new": [], "mcp": []}
    with serving(tmp_path, write_edition(tmp_path, 1, storage), words=["--workers", "2"]) as served:
        url, port = f"{served.url}/v1/shop/edition", int(served.url.rpartition(":")[2])
        async with (
            patient.AsyncClient() as kept,
            patient.AsyncClient() as fresh,
            Client(f"{served.url}/shop/mcp") as mcp,
            anyio.create_task_group() as tasks,
        ):

            async def over_http() -> str:
                return str((await kept.get(url)).raise_for_status().json()["result"])

            async def over_a_new_connection() -> str:
                return str((await fresh.get(url, headers={"Connection": "close"})).raise_for_status().json()["result"])

            async def over_mcp() -> str:
                return str((await mcp.call_tool("edition")).data)

            async def call(name: str, once: Call) -> None:
                while True:
                    answers[name].append(await once())
                    await anyio.sleep(0.1)  # the workers' start is not to wait for the callers

            for name, once in (("kept", over_http), ("new", over_a_new_connection), ("mcp", over_mcp)):
                tasks.start_soon(call, name, once)
            await logged(served, "worker serves", times=2)
            write_edition(tmp_path, 2, storage, port=port)
            served.process.send_signal(signal.SIGHUP)
            await logged(served, " reloaded")
            seen = {name: len(each) for name, each in answers.items()}
            while any(len(answers[name]) < seen[name] + 3 for name in seen):  # noqa: ASYNC110  # the callers go on
                await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
        assert "edition 2" in patient.get(f"{served.url}/tools", headers={"Accept": "text/html"}, follow_redirects=True).text
    for name, each in answers.items():
        editions = [answer.split()[0] for answer in each]
        assert set(editions) == {"1", "2"}, name
        assert set(editions[-3:]) == {"2"}, name
    assert served.process.poll() == 0


async def test_a_worker_that_dies_is_replaced_and_a_wrong_configuration_changes_nothing(tmp_path: Path, storage: str) -> None:
    with serving(tmp_path, write_edition(tmp_path, 1, storage), words=["--workers", "2"]) as served:
        before = processes(served, count=2)
        page = ""
        with anyio.fail_after(patience(60)):
            while sorted(COUNTED.findall(page)) != ["1", "2"]:  # a call is counted once its answer has been sent
                page = patient.get(f"{served.admin}/metrics").text
                await anyio.sleep(0.2)
        assert 'campus_check_findings{check="storage"} 0.0' in page
        os.kill(int(min(before)), signal.SIGKILL)
        await logged(served, "worker ended")
        await logged(served, "worker serves", times=3)
        after = processes(served, count=2)
        assert len(before & after) == 1
        for wrong, reason in (("shape = 1\n", "unknown key 'shape'"), ('host = "0.0.0.0"\n', "takes a restart")):
            write_config(tmp_path, wrong + CAMPUS.format(name="wrong", storage=storage), port=int(served.url.rpartition(":")[2]))
            served.process.send_signal(signal.SIGHUP)
            await logged(served, reason)
        (tmp_path / "shop.py").write_text("1 / 0")
        write_config(tmp_path, CAMPUS.format(name="wrong", storage=storage), port=int(served.url.rpartition(":")[2]))
        served.process.send_signal(signal.SIGHUP)
        await logged(served, "ZeroDivisionError")
        assert processes(served, count=2) == after


def test_a_worker_that_cannot_start_ends_the_service_with_a_sentence(tmp_path: Path, storage: str) -> None:
    config = write_config(tmp_path, write_edition(tmp_path, 1, storage), port=free_port())
    for code, reason in (
        ("1 / 0", "ZeroDivisionError"),
        ("import os; os._exit(7)", "5 workers in a row ended soon after their start, the last because it ended with code 7"),
    ):
        (tmp_path / "shop.py").write_text(code)
        ended = command("serve", "--workers", "2", "--config", str(config))
        assert (ended.returncode, reason in ended.stderr.splitlines()[-1]) == (2, True), ended.stderr


def test_workers_need_postgresql(tmp_path: Path) -> None:
    config = write_config(tmp_path, write_edition(tmp_path, 1, "sqlite:data"), port=free_port())
    ended = command("serve", "--workers", "2", "--config", str(config))
    assert ended.returncode == 2
    assert ended.stderr.startswith("campus: --workers needs PostgreSQL")
    with suppress(FileNotFoundError):
        assert not list((tmp_path / "data").iterdir())
