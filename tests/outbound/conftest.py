"""A network that the test controls: its names and addresses lead to a real TLS server and a real SMTP server on this machine."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpcore
import pytest
from anyio.streams.tls import TLSListener
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from campus.outbound import GuardedClient
from campus.outbound.http_clients import guarded_client
from campus.outbound.public_hosts import Connection

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
OWN_URL = "https://campus.dev"
HOOK, PUBLIC = "hooks.good.dev", "93.184.215.14"

Answering = Callable[[anyio.abc.ByteStream], Awaitable[None]]


@dataclass(frozen=True)
class Authority:
    """The server's certificate for every host name of the tests, and a client context that trusts it."""

    server: ssl.SSLContext
    client: ssl.SSLContext


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "campus tests")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.DNSName(HOOK), x509.DNSName("localhost")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    certificate = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    path: Path = tmp_path_factory.mktemp("tls") / "server.pem"
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(secret + certificate.public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return Authority(server, ssl.create_default_context(cafile=str(path)))


@dataclass
class Receiver:
    """A server that counts its connections, keeps what it was sent, and answers as the test says."""

    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)

    async def serve(self, listener: Any, answer: Answering) -> None:
        async def serve_one(stream: anyio.abc.ByteStream) -> None:
            self.connections += 1
            try:
                async with stream:
                    self.requests.append(await _request(stream))
                    await answer(stream)
            except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
                pass  # the client closed the connection

        await listener.serve(serve_one)


async def _request(stream: anyio.abc.ByteStream) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        received += await stream.receive()
    head, _, body = received.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += await stream.receive()
    return head + b"\r\n\r\n" + body


def answering(answer: bytes) -> Answering:
    async def send(stream: anyio.abc.ByteStream) -> None:
        await stream.send(answer)

    return send


OpenReceiver = Callable[..., AbstractAsyncContextManager[Receiver]]


@pytest.fixture
def open_receiver(authority: Authority) -> OpenReceiver:
    @asynccontextmanager
    async def running(answer: bytes | Answering, *, tls: bool = True) -> AsyncIterator[Receiver]:
        listener: Any = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        receiver = Receiver(port)
        wrapped = TLSListener(listener, authority.server, standard_compatible=False) if tls else listener
        async with wrapped, anyio.create_task_group() as tasks:
            tasks.start_soon(receiver.serve, wrapped, answering(answer) if isinstance(answer, bytes) else answer)
            yield receiver
            tasks.cancel_scope.cancel()

    return running


@dataclass
class Network(httpcore.AsyncNetworkBackend):
    """The internet: `places` has the port on this machine for each public address; `dialled` has the connections."""

    places: dict[str, int] = field(default_factory=dict)
    honest: bool = True
    knows_peers: bool = True
    dialled: list[str] = field(default_factory=list)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's signature, here and below
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.dialled.append(host)
        if host not in self.places:
            raise httpcore.ConnectError("nobody there")
        stream = await httpcore.AnyIOBackend().connect_tcp("127.0.0.1", self.places[host])
        return Translated(stream, (host, port) if self.knows_peers else None) if self.honest else stream


@dataclass(frozen=True)
class Translated(Connection):
    """A connection through the test's network: its other end is where it was dialled. A failed handshake leaves it open."""

    peer: tuple[str, int] | None

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        return Translated(await self.stream.start_tls(ssl_context, server_hostname, timeout), self.peer)

    def get_extra_info(self, info: str) -> Any:
        return self.peer if info == "server_addr" else self.stream.get_extra_info(info)


@dataclass
class Names:
    """Name servers that return one answer after the other, then always the last one; `asked` has the lookups."""

    answers: Sequence[Sequence[str]] = ((PUBLIC,),)
    asked: list[str] = field(default_factory=list)

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


OpenClient = Callable[..., GuardedClient]


@pytest.fixture
def open_client(authority: Authority) -> OpenClient:
    def opened(
        names: Callable[[str, int], Sequence[str]] | None = None, network: httpcore.AsyncNetworkBackend | None = None, **options: Any
    ) -> GuardedClient:
        return guarded_client(OWN_URL, resolve=names or Names(), network=network or Network(), trust=authority.client, **options)

    return opened
