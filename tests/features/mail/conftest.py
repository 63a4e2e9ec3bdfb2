"""A real SMTP server on this machine, and the mail of a campus that sends through it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from outbound.conftest import NOON, Authority, authority
from pydantic import SecretStr

from campus.features.mail.smtp import Mail

__all__ = ["MailServer", "OpenMail", "OpenMailServer", "authority"]


@dataclass(frozen=True)
class ReceivedMail:
    """A message as the server accepted it."""

    sender: str
    recipients: list[str]
    over_tls: bool
    raw: bytes

    @property
    def read(self) -> EmailMessage:
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
    @asynccontextmanager
    async def running(*, tls: str | None = None, password: bool = False) -> AsyncIterator[MailServer]:
        server = MailServer()
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
