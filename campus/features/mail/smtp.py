"""E-mail through the operator's SMTP server: plain text, and HTML beside it, one message to one address."""

import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email.charset import QP, Charset
from email.header import Header
from email.message import Message
from email.mime.multipart import MIMEMultipart
from email.policy import compat32
from email.utils import format_datetime, formataddr, parseaddr
from types import MappingProxyType
from typing import Any, Literal
from uuid import uuid4

import anyio
import httpx
from aiosmtplib import SMTP, SMTPConnectError, SMTPException, SMTPRecipientsRefused, SMTPServerDisconnected
from anyio import CapacityLimiter
from pydantic import SecretStr

from campus.errors import CampusError, ConfigError, one_line
from campus.features.mail.feature import PASSWORD, MailTable

__all__ = ["Mail", "MailRefused", "MailUnavailable"]

Tls = Literal["implicit", "starttls", "offered", "none"]

IMPLICIT_TLS_PORT = 465
SEND_SECONDS, STEP_SECONDS = 30.0, 10.0
CONNECTIONS = 4
LONGEST_ADDRESS, LONGEST_SUBJECT = 254, 200
LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
ADDRESS = re.compile(rf"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~.-]{{1,64}}@({LABEL}(?:\.{LABEL})*)")
MESSAGE_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
NO_SUCH_ADDRESS = frozenset({550, 551, 553, 556})
OURS = frozenset({"auto-submitted", "bcc", "cc", "date", "from", "message-id", "reply-to", "sender", "subject", "to"})
OWN_HEADER = re.compile(r"(?!content-|mime-|resent-)[a-z][a-z0-9-]*", re.IGNORECASE)
WIRE = compat32.clone(linesep="\r\n", max_line_length=998)
"""The older policy leaves a long word whole; the newer one would encode the URL in List-Unsubscribe."""


class MailUnavailable(CampusError):
    """The e-mail was not accepted; it may be later. It may have been sent nevertheless if the server did not answer: `maybe_sent`."""

    def __init__(self, message: str, *, maybe_sent: bool = False) -> None:
        super().__init__(message)
        self.maybe_sent = maybe_sent


class MailRefused(MailUnavailable):
    """An e-mail cannot be sent to this address, now or later."""


@dataclass(frozen=True, kw_only=True)
class Mail:
    """An SMTP server and the sender, an address or `Name <address>`.

    `tls`: implicit (from the first byte), starttls (required), offered (starttls if the server supports it) or none.
    `trust` holds the certificate authorities, by default the system's; `seconds` is the limit for a message as a whole.
    """

    host: str
    port: int
    sender: str
    now: Callable[[], datetime]
    username: str | None = None
    password: SecretStr | None = None
    tls: Tls = "offered"
    trust: ssl.SSLContext | None = None
    seconds: float = SEND_SECONDS
    limiter: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(CONNECTIONS), repr=False)

    @property
    def address(self) -> str:
        """The sender's address."""
        return parseaddr(self.sender)[1]

    async def send(
        self,
        to: str,
        subject: str,
        text: str,
        *,
        html: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        message_name: str | None = None,
    ) -> str:
        """Send one message; returns its Message-ID once the server has accepted it. `html` says the same as the text.

        Callers' text may be used anywhere: line ends and control characters in a header become spaces. The Message-ID begins with
        `message_name`, letters and digits; the same name for each try lets mailboxes drop duplicates. Raises MailUnavailable if
        the server does not accept the message now, MailRefused if it never will.
        """
        check_address(to)
        name = message_name or uuid4().hex
        if not MESSAGE_NAME.fullmatch(name):
            raise ValueError(f"a message's name is up to 128 letters, digits, dots and dashes, not {name!r}")
        message_id = f"<{name}@{domain_of(self.address)}>"
        message = self._compose(to, subject, text, html, {**own_headers(headers), "Message-ID": message_id})
        async with self.limiter, self._connected() as server:
            await server.sendmail(self.address, [to], message)
        return message_id

    async def check(self) -> Sequence[str]:
        """What is wrong with the server: connects to it, with TLS and the password as configured."""
        try:
            async with self._connected():
                return ()
        except MailUnavailable as error:
            return (str(error),)

    def _compose(self, to: str, subject: str, text: str, html: str | None, headers: Mapping[str, str]) -> bytes:
        message = Message() if html is None else MIMEMultipart("alternative")
        message["From"] = formataddr(parseaddr(self.sender))
        message["To"] = to
        message["Date"] = format_datetime(self.now())
        message["Auto-Submitted"] = "auto-generated"
        for name, value in {"Subject": one_line(subject, longest=LONGEST_SUBJECT), **headers}.items():
            message[name] = value if value.isascii() else Header(value, header_name=name).encode()
        if html is None:
            message.set_payload(whole(text), quoted_utf8())
        else:
            for kind, content in (("plain", text), ("html", html)):  # the last is shown where it can be
                part = Message()
                part["Content-Type"] = f"text/{kind}"
                part.set_payload(whole(content), quoted_utf8())
                message.attach(part)
        return message.as_bytes(policy=WIRE)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[SMTP]:
        try:
            with anyio.fail_after(self.seconds):
                async with SMTP(**self._options()) as server:
                    yield server
        except SMTPRecipientsRefused as error:
            refusal = error.recipients[0]
            kind = MailRefused if refusal.code in NO_SUCH_ADDRESS else MailUnavailable
            raise kind(f"{self._name} refused the recipient: {refusal.code} {one_line(refusal.message)}") from None
        except (SMTPException, OSError, ValueError) as error:
            unanswered = isinstance(error, TimeoutError | SMTPServerDisconnected) and not isinstance(error, SMTPConnectError)
            reason = one_line(error) or "it took too long"
            raise MailUnavailable(f"{self._name} did not accept the e-mail: {reason}", maybe_sent=unanswered) from None

    @property
    def _name(self) -> str:
        return f"the SMTP server {self.host}:{self.port}"

    def _options(self) -> dict[str, Any]:
        start_tls = {"starttls": True, "offered": None}.get(self.tls, False)
        login = {"username": self.username or self.address, "password": self.password.get_secret_value()} if self.password else {}
        return {
            "hostname": self.host,
            "port": self.port,
            "use_tls": self.tls == "implicit",
            "start_tls": start_tls,
            "tls_context": self.trust,
            "local_hostname": domain_of(self.address),
            "timeout": min(STEP_SECONDS, self.seconds),
            **login,
        }


def check_address(address: str) -> None:
    """Raise MailRefused unless it is one plain address, such as name@host.example, in ASCII."""
    if len(address) > LONGEST_ADDRESS or not ADDRESS.fullmatch(address):
        raise MailRefused("that is not an e-mail address; write one as name@host.example, without a display name")


def ascii_address(address: str) -> str:
    """The address with its host in ASCII, as mail servers name it: me@bücher.example is me@xn--bcher-kva.example."""
    name, at, host = address.rpartition("@")
    try:
        return address if address.isascii() else f"{name}{at}{httpx.URL(scheme='https', host=host).raw_host.decode()}"
    except httpx.InvalidURL:
        return address


def domain_of(address: str) -> str:
    return address.rpartition("@")[2]


def own_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """A building's headers, each on one line; raises ValueError for a name that is invalid, or that campus sets."""
    for name in headers:
        if name.lower() in OURS or not OWN_HEADER.fullmatch(name):
            raise ValueError(f"{name!r} is not a header that can be added; campus sets those of the envelope and the body")
    return {name: one_line(value, longest=None) for name, value in headers.items()}


def whole(text: str) -> str:
    """The text, with characters replaced that UTF-8 or an e-mail cannot contain."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def quoted_utf8() -> Charset:
    """UTF-8 as quoted-printable: readable in the source, and unharmed by servers that pass 7 bits only."""
    charset = Charset("utf-8")
    charset.body_encoding = QP
    return charset


def open_mail(table: MailTable, password: SecretStr | None, now: Callable[[], datetime]) -> Mail:
    """The mail of campus.toml. Raises ConfigError if it cannot work. Nothing is connected."""
    if not table.sender.isprintable() or not ADDRESS.fullmatch(parseaddr(table.sender)[1]):
        raise ConfigError(
            f"[mail] sender = {table.sender!r} is not an address; write it as alerts@host.example, or Name <alerts@host.example>"
        )
    if password and table.tls == "none":
        raise ConfigError(f"[mail] tls = 'none' would send {PASSWORD} in the clear; leave tls out, or unset the password")
    if table.username and not password:
        raise ConfigError(f"[mail] username needs a password: set {PASSWORD} in the environment")
    by_default: Tls = "implicit" if table.port == IMPLICIT_TLS_PORT else "starttls" if password else "offered"
    return Mail(
        host=table.host,
        port=table.port,
        sender=table.sender,
        now=now,
        username=table.username,
        password=password,
        tls=table.tls or by_default,
    )
