"""The recorder as users run it: curl and the cron command, an MCP client, a real TLS receiver and a real SMTP server."""

import json
import re
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client
from patience import patience
from recorder.receivers import Authority, Mailbox, Receiver
from serving import Served, serving, start
from standardwebhooks import Webhook

from tests import patient

pytestmark = pytest.mark.anyio
CONFIG = """
openapi = "recorder"
[storage]
url = "{storage}"
[web]
allowed_hosts = ["localhost"]
[mail]
host = "127.0.0.1"
port = {mail_port}
sender = "alerts@campus.test"
tls = "none"
[products.recorder]
scope = "recorder"
price = "19"
term = "30 days"
[buildings.recorder]
"""


@contextmanager
def served(folder: Path, storage: str, authority: Authority, mailbox: Mailbox) -> Iterator[Served]:
    text = CONFIG.format(storage=storage, mail_port=mailbox.port)
    environ = {"SSL_CERT_FILE": str(authority.file)}
    with serving(folder, text, environ=environ) as campus:
        yield campus


async def until(condition: Callable[[], Any], *, do: Callable[[], Awaitable[object]] | None = None) -> None:
    with anyio.fail_after(patience(20)):
        while not condition():
            if do is not None:
                await do()
            await anyio.sleep(0.05)


async def curl(*words: str) -> Any:
    done = await anyio.run_process(["curl", "-sS", *words])
    return json.loads(done.stdout)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
async def test_an_agent_that_stops_and_one_that_recovers_are_reported(
    tmp_path: Path, authority: Authority, receiver: Receiver, mailbox: Mailbox
) -> None:
    with served(tmp_path, "sqlite:data", authority, mailbox) as campus:
        key = await anyio.to_thread.run_sync(campus.key, "recorder")
        arguments = {"name": "by curl", "alert_webhook": receiver.url("/curl"), "period_minutes": 0.1, "grace_minutes": 0}
        header = "Content-Type: application/json"
        by_curl = await curl("-H", header, "-d", json.dumps(arguments), f"{campus.url}/v1/recorder/monitors")
        mailed = {**arguments, "name": "by mail", "alert_email": "me@example.com"}
        auth = f"Authorization: Bearer {key}"
        by_mail = await curl("-H", header, "-H", auth, "-d", json.dumps(mailed), f"{campus.url}/v1/recorder/monitors")
        async with Client(f"{campus.url}/recorder/mcp") as client:
            called = await client.call_tool("register_monitor", {**arguments, "name": "by mcp", "alert_webhook": receiver.url("/mcp")})
            by_mcp = called.structured_content
            assert by_mcp is not None
            who = {"monitor_id": by_mcp["monitor_id"], "secret": by_mcp["secret"]}
            await client.call_tool("heartbeat", who)
            await anyio.run_process(["sh", "-c", by_curl["cron"]])
            await anyio.run_process(["sh", "-c", by_mail["cron"]])
            await until(lambda: mailbox.messages)
            async with patient.AsyncClient() as reader:
                await reader.post(campus.url + re.sub("^https?://[^/]+", "", mailbox.link("confirm")))
            await until(lambda: receiver.types.count("monitor.dead") == 3 and len(mailbox.messages) == 2)
            await client.call_tool("heartbeat", who)
        await anyio.run_process(["sh", "-c", by_curl["cron"]])
        await anyio.run_process(["sh", "-c", by_mail["cron"]])
        await until(lambda: receiver.types.count("monitor.recovered") == 3 and len(mailbox.messages) == 3)
        assert [str(one["Subject"]).partition(" ")[2][:11] for one in mailbox.messages[1:]] == ["mail is dea", "mail has re"]
        names = {one.json["monitor"]["name"] for one in receiver.requests}
        assert names == {"by curl", "by mail", "by mcp"}
        secrets = {"by curl": by_curl, "by mail": by_mail, "by mcp": by_mcp}
        for one in receiver.requests:
            Webhook(secrets[one.json["monitor"]["name"]]["webhook_secret"]).verify(one.body, dict(one.headers))
        for secret in (by_curl["secret"], by_mail["secret"], by_mcp["secret"], by_curl["webhook_secret"], key):
            assert secret not in campus.log


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
async def test_the_cron_command_retries_while_the_service_restarts(tmp_path: Path, authority: Authority, mailbox: Mailbox) -> None:
    with served(tmp_path, "sqlite:data", authority, mailbox) as campus:
        arguments = {"name": "job", "alert_webhook": "https://localhost/hook"}
        monitor = patient.post(f"{campus.url}/v1/recorder/monitors", json=arguments).json()
        campus.process.kill()
        campus.process.wait()
        command = await anyio.open_process(["sh", "-c", monitor["cron"]], stderr=None)
        await anyio.sleep(0.5)
        assert command.returncode is None, "it gave up on a refused connection"
        again = start(campus.words, campus.environ)
        with anyio.fail_after(patience(20)):
            assert await command.wait() == 0
        again.terminate()
        again.wait(patience(20))


def test_a_key_has_eight_streams_of_events_which_end_when_the_server_stops(tmp_path: Path) -> None:
    without_mail = re.sub(r"\[mail\].*?(?=\[products)", "", CONFIG.format(storage="sqlite:data", mail_port=0), flags=re.DOTALL)
    with serving(tmp_path, without_mail) as campus, ExitStack() as open_streams:
        headers = {"Authorization": f"Bearer {campus.key('recorder')}"}
        client = open_streams.enter_context(patient.Client(base_url=campus.url, headers=headers, timeout=patience(20)))
        streams = [open_streams.enter_context(client.stream("GET", "/recorder/events")) for _ in range(8)]
        lines = [stream.iter_lines() for stream in streams]
        for each in lines:
            assert next(line for line in each if line.startswith("event")) == "event: ready"
        refused = client.get("/recorder/events")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
        streams[0].close()
        deadline = time.monotonic() + patience(20)
        while time.monotonic() < deadline:
            with client.stream("GET", "/recorder/events") as again:
                if again.status_code == 200:
                    break
            time.sleep(0.1)
        assert again.status_code == 200, "a stream that its reader left makes room"
        campus.process.send_signal(signal.SIGTERM)
        for each in lines[1:]:
            assert not [line for line in each if line.startswith("event")]
        assert campus.process.wait(patience(20)) == 0
    assert "Traceback" not in campus.log
