"""The operator's listener: metrics and the checks' findings are shown there and nowhere else."""

import signal
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from patience import patience
from serving import command, free_port, serving, write_config

from campus import Building, Check, Site
from campus.errors import StorageUnavailable
from campus.testing import TestCampus, open_campus
from tests import patient

pytestmark = pytest.mark.anyio

SENTENCE = "the feed at file:///srv/lists?token=hunter2 failed: ConnectError"
GATEWAY = '[buildings.gateway]\npath = "/"\n'


def troubled(shop: Building) -> Building:
    async def feed(site: Site[Any, Any]) -> Sequence[str]:
        return [SENTENCE]

    async def stock(site: Site[Any, Any]) -> Sequence[str]:
        raise StorageUnavailable("the database is full: free space on its disk")

    return replace(shop, checks=[Check(feed, on="ready"), Check(stock, on="ready")])


async def test_metrics_are_on_the_operators_listener_and_never_public(open_shop: TestCampus) -> None:
    async with open_shop.admin() as admin:
        open_shop.site.count("sales", kind="book")
        open_shop.site.count("sales", kind="book")
        page = await admin.get("/metrics")
        assert 'campus_shop_sales_total{kind="book"} 2.0' in page.text
        assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
        for headers in ({}, {"X-Forwarded-For": "127.0.0.1"}, {"X-Forwarded-For": "203.0.113.7"}):
            public = await open_shop.http.get("/metrics", headers=headers)
            assert (public.status_code, public.json()["code"]) == (404, "not_found"), headers


async def test_readyz_tells_the_public_which_check_failed_and_the_operator_why(shop: Building) -> None:
    async with open_campus(shop=troubled(shop)) as campus, campus.admin() as admin:
        public, operators = await campus.http.get("/readyz"), await admin.get("/readyz")
    assert (public.status_code, operators.status_code) == (200, 200)
    assert public.json()["checks"] == {"storage": "ok", "jobs": "ok", "shop": "failed"}
    assert "hunter2" not in public.text
    assert operators.json()["checks"]["shop"] == [SENTENCE, "the check stock failed: the database is full: free space on its disk"]


async def test_a_campus_that_ends_waits_for_checks_that_nobody_asks_for_any_more(shop: Building) -> None:
    begun, finished = anyio.Event(), anyio.Event()

    async def stock(site: Site[Any, Any]) -> Sequence[str]:
        begun.set()
        await anyio.sleep(0.2)
        finished.set()
        return []

    async with open_campus(shop=replace(shop, checks=[Check(stock, on="ready")])) as campus, anyio.create_task_group() as callers:
        callers.start_soon(campus.http.get, "/readyz")
        await begun.wait()
        callers.cancel_scope.cancel()
    assert finished.is_set()


async def test_pages_of_others_that_rebind_their_name_or_have_another_origin_read_nothing_of_the_operators(open_shop: TestCampus) -> None:
    async with open_shop.admin() as admin:
        for path in ("/metrics", "/readyz", "/healthz", "/"):
            answer = await admin.get(path, headers={"Host": "rebound.example"})
            assert (answer.status_code, answer.json()["code"]) == (421, "misdirected_request"), path
        for path, status in (("/metrics", 200), ("/readyz", 200), ("/nothing", 404)):
            answer = await admin.get(path, headers={"Origin": "https://page.example"})
            assert answer.status_code == status
            assert not [name for name in answer.headers if name.startswith("access-control")]
        answer = await admin.get("/v1/shop/sample")
    assert answer.status_code == 404
    assert "/healthz, /metrics, /readyz" in answer.json()["detail"]


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGHUP])
def test_a_served_campus_has_both_listeners_and_stops_as_a_whole(tmp_path: Path, ended_by: signal.Signals) -> None:
    with serving(tmp_path, GATEWAY) as campus:
        with socket.create_connection(("127.0.0.1", httpx.URL(campus.url).port)) as connection:
            connection.sendall(b"GARBAGE\r\n\r\n")
            assert connection.recv(1024).startswith(b"HTTP/1.1 400 ")
        metrics = patient.get(f"{campus.admin}/metrics")
        assert (metrics.status_code, metrics.text.count('campus_connections_refused_total{code="invalid_http"} 1.0\n')) == (200, 1)
        assert patient.get(f"{campus.admin}/readyz").json()["checks"]["storage"] == []
        assert patient.get(f"{campus.url}/metrics").status_code == 404
        campus.process.send_signal(ended_by)
        assert campus.process.wait(patience(20)) == 0
    for event in ("serving", "stopped"):
        assert campus.log.count(f": {event} listener=public url={campus.url}\n") == 1
        assert campus.log.count(f": {event} listener=operator url={campus.admin}\n") == 1


def test_the_operators_listener_takes_ipv6_in_brackets(tmp_path: Path) -> None:
    address = f"[::1]:{free_port()}"
    with serving(tmp_path, GATEWAY, admin=address) as campus:
        assert patient.get(f"http://{address}/readyz").json()["ok"] is True
        assert f"http://{address}" in campus.log


def test_there_is_no_such_listener_unless_campus_toml_names_one(tmp_path: Path) -> None:
    with serving(tmp_path, GATEWAY, admin="off") as campus:
        assert campus.log.count(": serving ") == 1


def test_an_operators_port_in_use_is_reported_with_its_key_and_nothing_is_written(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = write_config(tmp_path, f'admin = "127.0.0.1:{port}"\n{GATEWAY}', port=free_port())
        answer = command("serve", "--config", str(config))
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1), answer.stderr
    assert f"port {port} on 127.0.0.1 is in use" in answer.stderr
    assert "under [server], in admin" in answer.stderr
    assert not (tmp_path / "data").exists()


def test_check_warns_of_a_listener_that_others_reach_and_of_proxies_that_are_everybody(tmp_path: Path) -> None:
    risky = 'admin = "0.0.0.0:9100"\ntrusted_proxies = ["0.0.0.0/0"]\n'
    checked = command("check", "--config", str(write_config(tmp_path, risky + GATEWAY, port=8000)))
    assert checked.returncode == 1
    assert "admin = '0.0.0.0:9100' has no encryption, and no login for metrics" in checked.stdout
    assert "every caller may claim any address" in checked.stdout
    safe = 'admin = "[::1]:9100"\ntrusted_proxies = ["10.0.0.0/8"]\n'
    assert command("check", "--config", str(write_config(tmp_path, safe + GATEWAY, port=8000))).stdout == "all is well\n"
