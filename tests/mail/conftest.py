"""A real SMTP server on this machine, which keeps what it takes, and a mail that knows of it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import SecretStr

from campus import Mail

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Authority:
    """A certificate of one's own for localhost, and clients that believe in it."""

    server: ssl.SSLContext
    client: ssl.SSLContext


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "campus tests")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    path: Path = tmp_path_factory.mktemp("tls") / "server.pem"
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(secret + certificate.public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return Authority(server, ssl.create_default_context(cafile=str(path)))


@dataclass(frozen=True)
class Letter:
    """A message as the server took it."""

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
class Postbox:
    """aiosmtpd's handler: keeps every message, refuses as told, notes who logged in."""

    port: int = 0
    refusal: str | None = None
    letters: list[Letter] = field(default_factory=list)
    logins: list[tuple[bytes, bytes]] = field(default_factory=list)

    def letter(self) -> Letter:
        """The one that came; no property, for aiosmtpd reads every attribute of its handler."""
        (only,) = self.letters
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
        self.letters.append(Letter(str(envelope.mail_from), list(envelope.rcpt_tos), over_tls, envelope.content))
        return "250 OK"

    def log_in(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login, data.password))
        return AuthResult(success=data.password == b"hush", handled=data.password == b"hush")


Posting = Callable[..., AbstractAsyncContextManager[Postbox]]


@pytest.fixture
def posting(authority: Authority) -> Posting:
    """`async with posting(tls=…)`: a server on a free port; tls is "starttls", "implicit" or None."""

    @asynccontextmanager
    async def running(*, tls: str | None = None, refusal: str | None = None, password: bool = False) -> AsyncIterator[Postbox]:
        box = Postbox(refusal=refusal)
        login: dict[str, Any] = {"authenticator": box.log_in, "auth_require_tls": tls == "starttls"} if password else {}

        # aiosmtpd is a protocol of asyncio's, so asyncio listens; without a loop it would make one
        loop = asyncio.get_running_loop()

        def session() -> SMTP:
            return SMTP(box, tls_context=authority.server if tls == "starttls" else None, hostname="localhost", loop=loop, **login)

        context = authority.server if tls == "implicit" else None
        listener = await loop.create_server(session, "localhost", 0, family=2, ssl=context)
        box.port = listener.sockets[0].getsockname()[1]
        async with listener:
            yield box

    return running


@pytest.fixture
def mailing(authority: Authority) -> Callable[..., Mail]:
    """The mail of a campus, through a postbox."""

    def made(box: Postbox, *, password: str | None = None, **options: Any) -> Mail:
        secret = SecretStr(password) if password else None
        known: dict[str, Any] = {
            "host": "localhost",
            "port": box.port,
            "sender": "Cämpus <alerts@campus.example>",
            "trust": authority.client,
        }
        return Mail(now=lambda: NOON, password=secret, **known | options)

    return made
