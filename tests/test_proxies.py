"""The proxies that docs/proxy.md shows, each run in front of a served campus: what a caller gets through them is what campus means."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from anyio.from_thread import start_blocking_portal
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from features.payments.terms.test_prices import ARGUMENTS
from patience import patience
from recorder.receivers import Authority, make_authority
from serving import Served, free_port, serving

from campus.features.chain import Payer, new_wallet, open_chain, open_facilitator, receipt_of, terms_of
from tests import patient

pytestmark = pytest.mark.anyio

PROXIES = (Path(__file__).parents[1] / "docs/proxy.md").read_text()
CALLER = "127.0.0.2"  # not a trusted proxy, unlike 127.0.0.1
REPEATED = 30
SLOW = """
from pathlib import Path
from time import monotonic
import anyio
from fastmcp import Context, FastMCP
mcp = FastMCP("Slow")

@mcp.tool(annotations={"readOnlyHint": True})
async def wait_for(file: str, context: Context) -> str:
    "Report progress, then wait until a file is there."
    await context.report_progress(1, 2)
    until = monotonic() + 60
    while monotonic() < until:
        if Path(file).exists():
            return "seen while it ran"
        await anyio.sleep(0.02)
    return "never"

@mcp.tool
def size_of(text: str) -> int:
    "Measure a text."
    return len(text)
"""
CONFIG = """
public_url = "https://localhost:{port}"
openapi = "slow"
[buildings.gateway]
path = "/"
[buildings.slow]
server = "slow_building:mcp"
tools = {{ "*" = {{ free = true }}, size_of = {{ free = true, body_limit = 1048576 }} }}
"""
LONG_HOST = f"{'very-' * 8}long-name-is.example"
assert len(LONG_HOST) == 60
LARGEST_HEADERS = 3_600
"""All headers of a 402, in bytes: nginx's buffer for them has 4,096 where nobody sets another."""
LONGEST_ANSWERED = {"Origin": "https://agent.example", "Authorization": "Bearer campus_live_unknown", "X-Request-Id": "r" * 64}
"""Each of these adds to the headers of an answer."""
SELLING = """
public_url = "https://{host}:{port}"
[products.cve]
scope = "cve"
price = "19"
term = "30 days"
[products.recorder]
scope = "recorder"
price = "9"
term = "30 days"
[products.campus-pass]
scope = "all"
price = "29"
term = "30 days"
[products.campus-pass-year]
scope = "all"
price = "149"
term = "12 months"
[buildings.gateway]
path = "/"
[buildings.cve]
kev_url = "file:///nowhere"
osv_ecosystems = []
kev_mirror_url = "file:///nowhere"
epss_url = "file:///nowhere"
nvd_url = "file:///nowhere"
[buildings.checkout]
grants = ["keys"]
[buildings.slow]
server = "slow_building:mcp"
tools = {{ "*" = {{ price = "0.01" }} }}
[payments]
"""
NGINX = """
{user}
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/proxy.log;
events {{}}
http {{
    access_log off;
    server_names_hash_bucket_size 128;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {block}
}}
"""
CADDY = """
{{
    admin off
    auto_https disable_redirects
}}
{block}
"""


def block(language: str) -> str:
    [found] = re.findall(rf"```{language}\n(.*?)```", PROXIES, re.DOTALL)
    return str(found)


def replaced(text: str, *changes: tuple[str, str]) -> str:
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    return text


def nginx_command(folder: Path, program: str, port: int, upstream: str, certificate: Path, host: str = "localhost") -> list[str]:
    """The document's block with this test's ports and certificate, in the file that stands around it."""
    text = replaced(
        block("nginx"),
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("listen [::]:443 ssl", f"listen [::1]:{port} ssl" if socket.has_dualstack_ipv6() else f"listen 127.0.0.3:{port} ssl"),
        ("/etc/ssl/campus.example.pem", str(certificate)),
        ("/etc/ssl/campus.example.key", str(certificate)),
        ("campus.example", host),
        ("127.0.0.1:8000", upstream),
    )
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(NGINX.format(user=user, folder=folder, block=text))
    return [program, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "proxy.log")]


def caddy_command(folder: Path, program: str, port: int, upstream: str, certificate: Path, host: str = "localhost") -> list[str]:
    """The same for Caddy, with the older name that the document mentions where it is old, as Debian's is."""
    version = subprocess.check_output([program, "version"], text=True).split()[0].removeprefix("v")
    is_old = tuple(int(number) for number in re.findall(r"\d+", version)[:3]) < (2, 6, 3)
    text = replaced(
        block("caddyfile"),
        *[("request_buffers 2MB", "buffer_requests")] * is_old,
        ("campus.example {", f"https://{host}:{port} {{\n    tls {certificate} {certificate}"),
        ("127.0.0.1:8000", upstream),
    )
    (folder / "Caddyfile").write_text(CADDY.format(block=text))
    return [program, "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


COMMANDS = {"nginx": nginx_command, "caddy": caddy_command}


@dataclass(frozen=True)
class Proxied:
    """A campus behind a proxy."""

    url: str
    campus: Served
    authority: Authority

    def client(self) -> httpx.Client:
        """A caller from an address that is no proxy's."""
        transport = httpx.HTTPTransport(verify=self.authority.client, local_address=CALLER)
        return patient.Client(base_url=self.url, transport=transport)

    def mcp(self, path: str) -> Client[StreamableHttpTransport]:
        def made(**options: Any) -> httpx2.AsyncClient:
            # httpx2's own limit of 5 s would end the stream of a tool that is silent for longer, as on a busy machine
            return httpx2.AsyncClient(**{"timeout": patience(60), **options, "verify": self.authority.client})

        return Client(StreamableHttpTransport(self.url + path, httpx_client_factory=made))


@contextmanager
def running(command: list[str], folder: Path, port: int) -> Iterator[None]:
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "output.log").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **home})
    try:
        wait_until_it_listens(process, port, folder / "output.log")
        yield
    finally:
        process.terminate()
        process.wait(patience(30))


def wait_until_it_listens(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    give_up_at = time.monotonic() + patience(60)
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < give_up_at, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return


def program_of(name: str) -> str:
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if program is None:
        pytest.skip(f"{name} is not installed")
    return program


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    program = program_of(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "slow_building.py").write_text(SLOW)
    authority, port = make_authority(folder), free_port()
    config = CONFIG.format(port=port)
    with serving(folder, config, environ={"PYTHONPATH": str(folder)}, words=["--access-log"]) as campus:
        upstream = campus.url.removeprefix("http://")
        command = COMMANDS[request.param](folder, program, port, upstream, authority.file)
        with running(command, folder, port):
            yield Proxied(f"https://localhost:{port}", campus, authority)


def logged(campus: Served, request_id: str) -> str:
    give_up_at = time.monotonic() + patience(20)
    while not (lines := [line for line in campus.log.splitlines() if f"request_id={request_id}" in line]):
        assert time.monotonic() < give_up_at, campus.log
        time.sleep(0.02)
    return lines[0]


def test_campus_sees_the_caller_whatever_the_caller_says_of_itself(proxied: Proxied) -> None:
    with proxied.client() as client:
        for number, claimed in enumerate(({}, {"X-Forwarded-For": "203.0.113.9"}, {"X-Forwarded-For": "203.0.113.9, 127.0.0.1"})):
            request_id = f"caller-{number}"
            assert client.get("/v1/slow", headers={"X-Request-Id": request_id, **claimed}).status_code == 200
            line = logged(proxied.campus, request_id)
            assert f"client={CALLER} " in line
            assert "route=/v1/{building} " in line


def test_links_are_the_public_address_and_other_hosts_are_refused(proxied: Proxied) -> None:
    with proxied.client() as client:
        listed = client.get("/v1/gateway/list_buildings")
        assert f"{proxied.url}/slow/mcp" in listed.text
        assert "http://" not in listed.text
        assert listed.headers["strict-transport-security"]
        assert client.get("/v1/slow").json()["ok"] is True


def test_a_body_of_the_limit_passes_and_one_over_it_is_413(proxied: Proxied) -> None:
    with proxied.client() as client:
        text = "x" * (1024 * 1024 - len('{"text":""}'))
        taken = client.post("/v1/slow/size_of", content=f'{{"text":"{text}"}}', headers={"Content-Type": "application/json"})
        assert (taken.status_code, taken.json()) == (200, {"result": len(text)})
        assert client.post("/v1/slow/size_of", json={"text": text + "xx"}).status_code == 413


async def test_an_mcp_client_works_and_what_a_tool_reports_arrives_while_it_runs(proxied: Proxied, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.touch()

    for _ in range(REPEATED):  # Caddy without its buffer cuts one stream in twelve
        seen.unlink(missing_ok=True)
        async with proxied.mcp("/slow/mcp") as client:
            assert {tool.name for tool in await client.list_tools()} == {"wait_for", "size_of"}
            result = await client.call_tool("wait_for", {"file": str(seen)}, progress_handler=on_progress)
        assert result.data == "seen while it ran"


def test_pages_and_answers_are_compressed_and_a_known_page_is_not_sent_again(proxied: Proxied) -> None:
    with proxied.client() as client:
        for accept in ("text/html", "application/json"):
            page = client.get("/", headers={"Accept": accept, "Accept-Encoding": "gzip"})
            assert page.headers["content-encoding"] == "gzip", accept
            known = client.get("/", headers={"Accept": accept, "Accept-Encoding": "gzip", "If-None-Match": page.headers["etag"]})
            assert known.status_code == 304, (accept, page.headers["etag"])


def test_both_proxies_wait_ninety_seconds_and_keep_no_connection_longer_than_campus() -> None:
    assert {"proxy_read_timeout 90s;", "proxy_send_timeout 90s;", "keepalive_timeout 10s;"} <= set(re.findall(r"\w+ \d+s;", block("nginx")))
    assert {"response_header_timeout 90s", "keepalive 10s"} <= set(re.findall(r"\w+ \d+s", block("caddyfile")))


def bytes_of_headers(answer: httpx.Response) -> int:
    return len("HTTP/1.1 402 Payment Required\r\n\r\n") + sum(len(name) + len(value) + 4 for name, value in answer.headers.raw)


@pytest.mark.parametrize("name", ["nginx", "caddy"])
def test_the_402_of_every_paid_route_passes_and_a_call_is_paid_for_through_it(name: str, tmp_path: Path) -> None:
    program, authority, port, wallet = program_of(name), make_authority(tmp_path, LONG_HOST), free_port(), new_wallet()
    (tmp_path / "slow_building.py").write_text(SLOW)
    options = {"headers": {"Host": f"{LONG_HOST}:{port}"}, "extensions": {"sni_hostname": LONG_HOST}}
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(open_chain()) as chain,
        portal.wrap_async_context_manager(open_facilitator(chain)) as facilitator,
    ):
        portal.call(chain.mint, wallet.address, 1_000_000)
        table = facilitator.table(new_wallet().address)
        config = SELLING.format(host=LONG_HOST, port=port) + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
        with serving(tmp_path, config, environ={"PYTHONPATH": str(tmp_path)}) as campus:
            command = COMMANDS[name](tmp_path, program, port, campus.url.removeprefix("http://"), authority.file, LONG_HOST)
            with running(command, tmp_path, port), Proxied(f"https://localhost:{port}", campus, authority).client() as client:
                routes = [
                    (method.upper(), path.format_map(ARGUMENTS))
                    for path, item in client.get("/v1/openapi.json", **options).json()["paths"].items()
                    for method, operation in item.items()
                    if method in ("get", "post") and "402" in operation["responses"] and "x-payment-info" in operation
                ]
                assert len(routes) >= 10
                for method, path in routes:
                    query = "?" + "&".join(f"argument{number}={'x' * 99}" for number in range(20))
                    for asked in (path, path + query):
                        headers = {**options["headers"], **LONGEST_ANSWERED}
                        direct = patient.request(method, campus.url + asked, headers=headers)
                        through = client.request(method, asked, headers=headers, extensions=options["extensions"])
                        assert (direct.status_code, through.status_code) == (402, 402), asked
                        assert direct.headers["payment-required"] == through.headers["payment-required"]
                        assert bytes_of_headers(direct) < LARGEST_HEADERS, asked
                body = {"text": "measured"}
                unpaid = client.post("/v1/slow/size_of", json=body, **options)
                payment = Payer(wallet).pay_headers(terms_of(unpaid))
                paid = client.post("/v1/slow/size_of", json=body, headers=options["headers"] | payment, extensions=options["extensions"])
                assert (paid.status_code, paid.json()) == (200, {"result": 8}), paid.text
                assert receipt_of(paid)["success"] is True
