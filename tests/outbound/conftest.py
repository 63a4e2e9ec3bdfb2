"""A network that the test controls: its names and addresses lead to a real TLS server and a real SMTP server on this machine."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpcore
import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from anyio.streams.tls import TLSListener
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import SecretStr

from campus.outbound import GuardedClient, Mail
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
    """A request with its body, by Content-Length."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += await stream.receive()
    head, _, body = received.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += await stream.receive()
    return head + b"\r\n\r\n" + body


def answering(answer: bytes) -> Answering:
    """Answers with these bytes and closes."""

    async def send(stream: anyio.abc.ByteStream) -> None:
        await stream.send(answer)

    return send


OpenReceiver = Callable[..., AbstractAsyncContextManager[Receiver]]


@pytest.fixture
def open_receiver(authority: Authority) -> OpenReceiver:
    """`async with open_receiver(answer)`: a receiver on a free port of this machine, over TLS unless `tls=False`."""

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
    """A client of the service at campus.dev, in the test's network; it holds nothing that needs to be closed."""

    def opened(
        names: Callable[[str, int], Sequence[str]] | None = None, network: httpcore.AsyncNetworkBackend | None = None, **options: Any
    ) -> GuardedClient:
        return guarded_client(OWN_URL, resolve=names or Names(), network=network or Network(), trust=authority.client, **options)

    return opened


@pytest.fixture
def names() -> type[Names]:
    return Names


@pytest.fixture
def network() -> type[Network]:
    return Network


@dataclass(frozen=True)
class ReceivedMail:
    """A message as the server accepted it."""

    sender: str
    recipients: list[str]
    over_tls: bool
    raw: bytes

    @property
    def read(self) -> EmailMessage:
        """As a mailbox reads it."""
        message = BytesParser(policy=default).parsebytes(self.raw)
        assert isinstance(message, EmailMessage)
        return message


@dataclass
class MailServer:
    """aiosmtpd's handler: keeps every message, refuses as the test says, notes who logged in."""

    port: int = 0
    refusal: str | None = None
    received: list[ReceivedMail] = field(default_factory=list)
    logins: list[tuple[bytes, bytes]] = field(default_factory=list)

    def only_mail(self) -> ReceivedMail:
        """The only message. It is no property, because aiosmtpd reads every attribute of its handler."""
        (only,) = self.received
        return only

    async def handle_RCPT(self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]) -> str:
        if self.refusal is not None:
            return self.refusal
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        assert server.transport is not None
        over_tls = server.transport.get_extra_info("sslcontext") is not None
        self.received.append(ReceivedMail(str(envelope.mail_from), list(envelope.rcpt_tos), over_tls, envelope.content))
        return "250 OK"

    def log_in(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login, data.password))
        return AuthResult(success=data.password == b"hush", handled=data.password == b"hush")


OpenMailServer = Callable[..., AbstractAsyncContextManager[MailServer]]


@pytest.fixture
def open_mail_server(authority: Authority) -> OpenMailServer:
    """`async with open_mail_server(tls=…)`: a server on a free port; tls is "starttls", "implicit" or None."""

    @asynccontextmanager
    async def running(*, tls: str | None = None, refusal: str | None = None, password: bool = False) -> AsyncIterator[MailServer]:
        server = MailServer(refusal=refusal)
        login: dict[str, Any] = {"authenticator": server.log_in, "auth_require_tls": tls == "starttls"} if password else {}

        # aiosmtpd is a protocol of asyncio's, so asyncio listens; without a loop it would make one
        loop = asyncio.get_running_loop()

        def session() -> SMTP:
            return SMTP(server, tls_context=authority.server if tls == "starttls" else None, hostname="localhost", loop=loop, **login)

        context = authority.server if tls == "implicit" else None
        listener = await loop.create_server(session, "localhost", 0, family=2, ssl=context)
        server.port = listener.sockets[0].getsockname()[1]
        async with listener:
            yield server

    return running


OpenMail = Callable[..., Mail]


@pytest.fixture
def open_mail(authority: Authority) -> OpenMail:
    """The mail of a campus, through a mail server of the test."""

    def made(server: MailServer, *, password: str | None = None, **options: Any) -> Mail:
        secret = SecretStr(password) if password else None
        known: dict[str, Any] = {
            "host": "localhost",
            "port": server.port,
            "sender": "Cämpus <alerts@campus.example>",
            "trust": authority.client,
        }
        return Mail(now=lambda: NOON, password=secret, **known | options)

    return made
