"""Client id metadata documents, fetched over TLS from addresses that strangers name: what is accepted, what is refused, what is kept."""

import json
from collections.abc import Callable

import anyio
import anyio.abc
import httpx
import pytest
from features.connect.chat_app import ORIGIN, ChatApp, answer_of
from features.connect.conftest import CONNECT, make_lock
from outbound.conftest import Names, Network, OpenClient, OpenReceiver

from campus.features.connect.clients import Client, ClientDocuments, ClientRefused
from campus.testing import open_campus
from tests import patient

pytestmark = pytest.mark.anyio
HOST, PUBLIC = "hooks.good.dev", "93.184.215.14"
URL = f"https://{HOST}/client.json"
CALLBACK = "https://chat.example/callback"
DOCUMENT = {"client_id": URL, "client_name": "Chat", "redirect_uris": [CALLBACK, "http://localhost/callback"], "application_type": "web"}


def answer(document: object, *, status: str = "200 OK", more: str = "") -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def test_a_client_with_a_document_is_let_in_by_its_url(open_receiver: OpenReceiver, open_client: OpenClient) -> None:
    async with open_receiver(answer(DOCUMENT)) as receiver:
        web = open_client(Names(), Network({PUBLIC: receiver.port}))
        async with (
            open_campus(lock=make_lock(), web=web, tables={**CONNECT, "server": {"public_url": ORIGIN, "openapi": "lock"}}) as campus,
            patient.AsyncClient(transport=httpx.ASGITransport(campus.app), base_url=ORIGIN) as http,
        ):
            app = ChatApp(http, client_id=URL, callback=CALLBACK)
            page = await app.page()
            assert f"as described at <strong>{HOST}</strong>" in page.text
            assert "<strong>chat.example</strong>" in page.text
            code = answer_of(await app.send(page, await campus.key("lock")))["code"]
            assert (await app.redeem(code)).status_code == 200
            assert await app.is_let_in()
            assert (await app.refresh()).status_code == 200
            local = ChatApp(http, client_id=URL, callback="http://localhost:8123/callback")
            assert (await local.page()).status_code == 200
    assert receiver.connections == 1  # nor is it fetched for tokens


async def refusal(documents: ClientDocuments, url: str = URL) -> str:
    with pytest.raises(ClientRefused) as refused:
        await documents.client(url)
    return str(refused.value)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (answer({**DOCUMENT, "client_id": "https://claude.ai/client.json"}), "not its own URL"),
        (answer({**DOCUMENT, "redirect_uris": ["javascript:alert(1)", "http://evil.example/"]}), "none of its redirect URIs"),
        (answer({**DOCUMENT, "redirect_uris": []}), "not a JSON object"),
        (answer({**DOCUMENT, "padding": "x" * 5_000}), "at most 4 KB"),
        (answer(b"<html>"), "not a JSON object"),
        (answer(b"[" * 4_000), "not a JSON object"),
        (answer(DOCUMENT, status="302 Found", more="Location: https://169.254.169.254/\r\n"), "answered 302"),
        (answer(DOCUMENT, status="503 Busy"), "answered 503"),
        (b"SSH-2.0-OpenSSH\r\n", "cannot be fetched"),
    ],
)
async def test_a_document_that_cannot_be_used_is_refused_with_the_reason(
    open_receiver: OpenReceiver, open_client: OpenClient, sent: bytes, why: str
) -> None:
    async with open_receiver(sent) as receiver:
        documents = ClientDocuments(open_client(Names(), Network({PUBLIC: receiver.port})), elapsed=lambda: 0.0)
        assert why in await refusal(documents)
        assert why in await refusal(documents)
    assert receiver.connections == 1  # a failure is kept for a while too


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/client.json",
        "https://[::1]/client.json",
        "https://localhost/client.json",
        "https://metadata.internal/client.json",
        "https://campus.dev/client.json",
        f"https://{HOST}:22/client.json",
        f"https://user@{HOST}/client.json",
        f"https://{HOST}/client.json#part",
        f"https://{HOST}",
        f"https://{HOST}/",
        f"https://{HOST}/a/../client.json",
        f"https://{HOST}/%2e%2e/client.json",
        "https://evil.example\\@hooks.good.dev/client.json",
        "https:///client.json",
        "https://",
    ],
)
async def test_no_connection_is_made_for_a_url_that_is_none_of_a_public_document(open_client: OpenClient, url: str) -> None:
    nobody = Network()
    assert "cannot be used" in await refusal(ClientDocuments(open_client(Names(), nobody), elapsed=lambda: 0.0), url)
    assert nobody.dialled == []


async def test_a_name_that_leads_to_a_private_address_is_refused(open_client: OpenClient) -> None:
    nobody = Network()
    documents = ClientDocuments(open_client(Names([["10.0.0.1"]]), nobody), elapsed=lambda: 0.0)
    assert "does not lead to the public internet" in await refusal(documents)
    assert nobody.dialled == []


async def test_a_document_is_read_again_after_ten_minutes_and_a_failure_after_half_a_minute(
    open_receiver: OpenReceiver, open_client: OpenClient
) -> None:
    time = [0.0]
    elapsed: Callable[[], float] = lambda: time[0]  # noqa: E731
    async with open_receiver(answer(DOCUMENT)) as receiver:
        net = Network({})
        documents = ClientDocuments(open_client(Names(), net), elapsed=elapsed)
        await refusal(documents)
        net.places[PUBLIC] = receiver.port
        time[0] = 29.9
        await refusal(documents)
        time[0] = 30.0
        assert isinstance(await documents.client(URL), Client)
        time[0] = 629.9
        await documents.client(URL)
        assert receiver.connections == 1
        time[0] = 630.0
        await documents.client(URL)
    assert receiver.connections == 2


async def test_documents_that_are_refused_push_out_none_that_is_used_and_take_nobodys_turn(
    open_receiver: OpenReceiver, open_client: OpenClient
) -> None:
    async with open_receiver(answer(DOCUMENT)) as receiver:
        documents = ClientDocuments(open_client(Names(), Network({PUBLIC: receiver.port})), elapsed=lambda: 0.0)
        await documents.client(URL)
        for number in range(300):
            await refusal(documents, f"https://10.0.0.1/{number}.json")
        await documents.client(URL)
        assert receiver.connections == 1


async def test_one_hosts_documents_take_two_of_the_turns_however_many_are_asked_for(
    open_receiver: OpenReceiver, open_client: OpenClient
) -> None:
    released = anyio.Event()

    async def wait(stream: anyio.abc.ByteStream) -> None:
        await released.wait()
        await stream.send(answer(b"", status="404 Not Found"))

    async with open_receiver(wait) as receiver, anyio.create_task_group() as tasks:
        documents = ClientDocuments(open_client(Names(), Network({PUBLIC: receiver.port})), elapsed=lambda: 0.0)
        for number in range(8):
            tasks.start_soon(refusal, documents, f"https://{HOST}/{number}.json")
        while receiver.connections < 2:  # noqa: ASYNC110  # a receiver rings no bell
            await anyio.sleep(0.01)
        assert "cannot be fetched at the moment" in await refusal(documents, "https://elsewhere.dev/client.json")
        assert receiver.connections == 2
        released.set()
