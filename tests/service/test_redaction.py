"""URLs that contain passwords: no output for operators or callers shows more of them than scheme and host."""

import logging
from pathlib import Path

import anyio
import pytest
from commands import Command, command_of
from fastmcp import FastMCP
from patience import patience
from serving import write_config

from campus import Building, Job, Site, free
from campus.jobs import Scheduler
from campus.observability import origin_of
from campus.observability.logs import OneLine
from campus.testing import open_campus

SECRETS = ("jane", "hunter2", "path-token", "query-token")
ADDRESS = "http://jane:hunter2@127.0.0.1:9/path-token/kev.json?key=query-token"
CONFIG = f"""
[buildings.cve]
kev_url = "{ADDRESS}"
osv_ecosystems = []
kev_mirror_url = "{ADDRESS}"
epss_url = "{ADDRESS}"
nvd_url = "{ADDRESS}"
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return command_of(capsys)


def assert_hidden(text: str) -> None:
    assert "http://127.0.0.1:9" in text
    assert [secret for secret in SECRETS if secret in text] == []


def test_the_check_of_the_feeds_shows_scheme_and_host_only(tmp_path: Path, run: Command) -> None:
    answer = run("check", "--config", str(write_config(tmp_path, CONFIG, port=8000)))
    assert answer.code == 1
    assert_hidden(answer.out + answer.err)


def test_a_refresh_that_fails_shows_scheme_and_host_only(tmp_path: Path, run: Command) -> None:
    answer = run("run", "cve.refresh", "--config", str(write_config(tmp_path, CONFIG, port=8000)))
    assert answer.code == 2
    assert_hidden(answer.out + answer.err)


def test_a_remote_building_with_a_wrong_address_is_named_without_its_password(tmp_path: Path, run: Command) -> None:
    text = '[buildings.far]\nserver = { url = "ftp://jane:hunter2@127.0.0.1:9/path-token" }\n'
    answer = run("tools", "--config", str(write_config(tmp_path, text, port=8000)))
    assert (answer.code, "ftp://127.0.0.1:9" in answer.err) == (2, True)
    assert [secret for secret in SECRETS if secret in answer.err] == []


@pytest.mark.anyio
async def test_a_job_of_a_strangers_building_that_quotes_its_feed_leaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def fetch(site: Site) -> None:
        (await site.feeds.get(ADDRESS)).raise_for_status()

    mcp = FastMCP("Quotes")
    mcp.tool(lambda: "x", name="quote", meta=free())
    async with open_campus(quotes=Building(mcp, jobs=[Job(fetch, daily_at="00:00")]), feeds={}) as campus:
        await run_until_it_failed(campus.service.scheduler)
        findings = " ".join(campus.service.scheduler.findings())
    assert_hidden(findings)
    assert_hidden("\n".join(OneLine().format(record) for record in caplog.records if record.levelno >= logging.ERROR))


async def run_until_it_failed(scheduler: Scheduler) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scheduler.run)
        with anyio.fail_after(patience(60)):
            while not any(one.failures for one in scheduler.status()):  # the state is in a database
                await scheduler.read_records()
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()


def test_what_may_be_shown_of_an_address() -> None:
    for address, shown in (
        ("https://jane:pw@feeds.example:8443/a?b#c", "https://feeds.example:8443"),
        ("https://feeds.example", "https://feeds.example"),
        ("http://[2001:db8::1]:80/x", "http://[2001:db8::1]:80"),
        ("https://jane@feeds.example?x=@other", "https://feeds.example"),
        ("file:///srv/feeds/kev.json", "file:///srv/feeds/kev.json"),
        ("file:///srv/feeds/nvd?token=x&startIndex=0#y", "file:///srv/feeds/nvd"),
        ("jane:pw@feeds", "an address without a host"),
    ):
        assert origin_of(address) == shown
