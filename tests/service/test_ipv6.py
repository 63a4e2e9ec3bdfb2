"""`campus serve` on IPv6: it binds, links have the address in brackets, and callers reach it under every spelling."""

import socket
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlsplit

import pytest
from fastmcp import Client
from patience import patience
from serving import serving

from campus.config import config_model
from campus.http.protocol import CONNECTIONS_PER_ADDRESS, HEAD_SECONDS
from tests import patient

GATEWAY = '[buildings.gateway]\npath = "/"\n'

pytestmark = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")


@pytest.mark.anyio
async def test_the_loopback_address_of_ipv6_is_served_and_linked_to_in_brackets(tmp_path: Path) -> None:
    with serving(tmp_path, GATEWAY, words=["--host", "::1"], host="[::1]") as campus:
        listed = patient.get(f"{campus.url}/v1/gateway/list_buildings").json()
        assert f"{campus.url}/mcp" in str(listed), listed
        assert patient.get(f"{campus.url}/v1/openapi.json").json()["servers"] == [{"url": campus.url}]
        assert f"url={campus.url}" in campus.log
        async with Client(f"{campus.url}/mcp") as client:
            assert f"{campus.url}/mcp" in str((await client.call_tool("list_buildings")).structured_content)
        assert patient.get(f"{campus.url}/v1/gateway", headers={"Host": "[0:0:0:0:0:0:0:1]"}).status_code == 200
        assert patient.get(f"{campus.url}/v1/gateway", headers={"Host": "[2001:db8::1]"}).status_code == 421


def test_all_addresses_of_ipv6_are_served_and_those_of_ipv4_too(tmp_path: Path) -> None:
    with serving(tmp_path, GATEWAY, words=["--host", "::"]) as campus:
        port = urlsplit(campus.url).port
        for host in ("127.0.0.1", "[::1]", "localhost"):
            assert patient.get(f"http://{host}:{port}/v1/gateway").status_code == 200, host
        assert patient.get(f"{campus.url}/v1/openapi.json").json()["servers"] == [{"url": f"http://[::]:{port}"}]
        assert patient.get(f"{campus.url}/v1/gateway", headers={"Host": "rebound.example"}).status_code == 421


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_campus_toml_may_write_it_with_brackets_or_without(host: str) -> None:
    config = config_model().model_validate({"server": {"host": host, "port": 8123}})
    assert (config.server.host, config.url) == ("::1", "http://[::1]:8123")


def test_idle_connections_of_one_address_shut_out_nobody_and_no_proxy_is_trusted_that_is_not_named(tmp_path: Path) -> None:
    with serving(tmp_path, f"trusted_proxies = []\n{GATEWAY}") as campus, ExitStack() as stack:
        there = ("127.0.0.1", urlsplit(campus.url).port or 0)
        idle = [stack.enter_context(socket.create_connection(there, timeout=patience(20))) for _ in range(CONNECTIONS_PER_ADDRESS + 40)]
        assert patient.get(f"{campus.url}/v1/gateway").status_code == 200
        give_up_at = monotonic() + HEAD_SECONDS / 2  # long before their time for a head is over
        while len(closed := [number for number, each in enumerate(idle) if is_closed(each)]) < 40 and monotonic() < give_up_at:
            sleep(0.05)
        assert 40 <= len(closed) <= 41, "as many as came too many, and one for the call"
        assert closed[-1] < CONNECTIONS_PER_ADDRESS, "the oldest made room"
        idle[-1].settimeout(patience(20))
        idle[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle[-1].recv(12) == b"HTTP/1.1 200"


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
