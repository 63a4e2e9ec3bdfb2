"""[web] of campus.toml: what it makes, and what `campus check` says of it."""

from pathlib import Path
from typing import Any

import pytest

from campus.app import assemble
from campus.config import Config, config_model
from campus.errors import TargetRefused
from campus.outbound.http_clients import guarded_client

pytestmark = pytest.mark.anyio


def config_at(folder: Path, **tables: Any) -> Config:
    return config_model().model_validate({"buildings": {"gateway": {"path": "/"}}, "folder": folder, **tables})


async def test_a_site_has_the_guarded_client_of_campus_toml(tmp_path: Path) -> None:
    config = config_at(tmp_path, server={"public_url": "https://campus.dev"}, web={"allowed_hosts": ["localhost"]})
    async with assemble(config, exclusive=False) as campus:
        site = campus.sites["gateway"]
        site.web.check_url("http://localhost:9999/")
        with pytest.raises(TargetRefused) as caught:
            await site.web.post("https://campus.dev/")
        assert caught.value.rule == "own_host"


async def test_a_check_warns_of_allowed_hosts(tmp_path: Path) -> None:
    async with assemble(config_at(tmp_path, web={"allowed_hosts": ["localhost", "b.dev"]}), exclusive=False) as campus:
        assert (await campus.ask("check"))["[web]"] == [
            "allowed_hosts lets callers make campus send requests to b.dev, localhost; leave it empty except for tests and local use"
        ]
    async with assemble(config_at(tmp_path), exclusive=False) as campus:
        assert (await campus.ask("check")).keys() == {"gateway"}


async def test_a_client_of_ones_own_may_stand_in(tmp_path: Path) -> None:
    web = guarded_client("https://campus.dev", resolve=lambda host, port: ["10.0.0.1"])
    async with assemble(config_at(tmp_path), exclusive=False, web=web) as campus:
        assert campus.sites["gateway"].web is web
        with pytest.raises(TargetRefused):
            await web.post("https://hooks.good.dev/")
    with pytest.raises(RuntimeError, match="closed"):
        await web.post("https://hooks.good.dev/")
