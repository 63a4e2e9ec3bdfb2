"""A server that is killed with SIGKILL between a list and the delivery of its news, on both databases: each is told under one id."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from cve.lists import CISCO
from patience import patience
from recorder.kills import WebhookReceiver, webhook_receiver
from recorder.receivers import Authority
from serving import Served, serving
from sqlalchemy import Connection, select, update

from buildings.cve.tables import ALERTS, TARGETS, Tables
from campus.storage import in_transaction
from campus.storage.databases import Databases
from campus.testing import Clock

CONFIG = """
[storage]
url = "{storage}"
[web]
allowed_hosts = ["localhost"]
[products.cve]
scope = "cve"
price = "19"
term = "30 days"
[buildings.cve]
kev_url = "file:///nowhere"
osv_ecosystems = []
kev_mirror_url = "file:///nowhere"
epss_url = "file:///nowhere"
nvd_url = "file:///nowhere.json"
"""
SECONDS = 60.0
"""A watch fires within a minute of the list."""


class NewsRequest(BaseHTTPRequestHandler):
    """One request with news; none is answered while the receiver is closed."""

    server: WebhookReceiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        for entry in body["entries"]:
            told = (body["watch"]["name"], entry["cve_id"])
            self.server.ids[told].add(self.headers["webhook-id"])
            self.server.deliveries[told] += 1
        if not self.server.open.is_set():
            self.server.held.set()
            self.server.open.wait(SECONDS)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""


def wait_for(condition: Callable[[], bool], campus: Served) -> None:
    deadline = time.monotonic() + patience(SECONDS)
    while not condition():
        assert time.monotonic() < deadline, campus.log
        time.sleep(0.05)


def deliver_and_kill(folder: Path, storage: str, receiver: WebhookReceiver, authority: Authority) -> None:
    """Serve until the first message is on its way, kill the server, and serve again until nothing waits."""
    environ, config = {"SSL_CERT_FILE": str(authority.file)}, CONFIG.format(storage=storage)

    def do(work: Callable[[Connection], Any]) -> Any:
        async def done() -> Any:
            async with Databases.open(storage) as databases:
                return await in_transaction(await databases.storage_of("cve", Tables), work)

        return anyio.run(done)

    receiver.open.clear()
    with serving(folder, config, environ=environ) as campus:
        wait_for(receiver.held.is_set, campus)
        campus.process.kill()
        campus.process.wait()
    receiver.open.set()
    do(lambda connection: connection.execute(update(TARGETS).values(leased_until=datetime.now(UTC))))  # as after 45 s
    with serving(folder, config, environ=environ) as campus:
        wait_for(lambda: not do(lambda connection: connection.execute(select(ALERTS.c.id)).all()), campus)
        campus.process.kill()


@pytest.mark.anyio
@pytest.mark.both_databases
@pytest.mark.faults("server killed")
async def test_news_are_told_though_the_server_is_killed_while_it_sends_them(
    tmp_path: Path, storage_url: str, open_lists, authority: Authority
) -> None:
    told = {("routers", "CVE-2026-7001"), ("water", "CVE-2026-7002")}
    with webhook_receiver(authority) as receiver:
        receiver.RequestHandlerClass = NewsRequest
        async with open_lists(storage=storage_url, clock=Clock(datetime.now(UTC) - timedelta(minutes=2))) as lists:
            for name, vendor in (("routers", "Cisco"), ("water", "Tonic")):
                await lists.watch(name=name, vendors=[vendor], alert_webhook=receiver.url(f"/{name}"))
            lists.clock.move(timedelta(minutes=1))
            lists.publish(("CVE-2026-7001", CISCO), ("CVE-2026-7002", {"vendorProject": "Tonic"}))
            for job in ("refresh", "nvd"):
                await lists.campus.run(job)
        await anyio.to_thread.run_sync(deliver_and_kill, tmp_path, storage_url, receiver, authority)
    assert {name: len(ids) for name, ids in receiver.ids.items()} == dict.fromkeys(told, 1)
    assert all(count <= 2 for count in receiver.deliveries.values()), "once before the kill, once after it"
