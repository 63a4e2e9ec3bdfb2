"""The receivers of alerts: an HTTPS server for webhooks with a certificate for localhost, and an SMTP server for e-mail."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
from aiosmtpd.smtp import SMTP, Envelope
from anyio.streams.tls import TLSListener
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from campus.testing import ORIGIN

SLACK = "hooks.slack.com"


@dataclass(frozen=True)
class Authority:
    """The certificate with its key in one file, and the two sides of a connection."""

    file: Path
    server: ssl.SSLContext
    client: ssl.SSLContext


def make_authority(folder: Path, *hosts: str) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "recorder tests")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    names = [x509.DNSName(host) for host in ("localhost", SLACK, *hosts)]
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "server.pem"
    path.write_bytes(secret + builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return Authority(path, server, ssl.create_default_context(cafile=str(path)))


@dataclass(frozen=True)
class Received:
    """One request that the receiver got."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """An HTTPS server that stores the requests it gets. It sends `answers` in their order, and then always the last one."""

    port: int
    requests: list[Received] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=lambda: [(200, {}, b"")])
    bell: anyio.Event = field(default_factory=anyio.Event)
    held: list[str] = field(default_factory=list)
    """Paths of the requests that get no answer: those below /hung, and /held until `released`, which then gets `late`."""
    released: anyio.Event = field(default_factory=anyio.Event)
    late: int = 200
    keeps_connections: bool = False
    connections: int = 0

    def url(self, path: str = "/hook") -> str:
        return f"https://localhost:{self.port}{path}"

    def answer(self, *statuses: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        self.answers = [(status, dict(headers or {}), body) for status in statuses]

    def answer_to(self, received: Received) -> tuple[int, dict[str, str], bytes]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    @property
    def types(self) -> list[str]:
        return [one.json["type"] for one in self.requests]

    async def serve(self, stream: anyio.abc.ByteStream) -> None:
        self.connections += 1
        with suppress(anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError, ssl.SSLError):
            async with stream:
                await self._exchange(stream)
                while self.keeps_connections:
                    await self._exchange(stream)

    async def _exchange(self, stream: anyio.abc.ByteStream) -> None:
        received = await _read_request(stream)
        if received.path.startswith("/hung"):
            self.held.append(received.path)
            await anyio.sleep_forever()
        if received.path == "/held":
            self.held.append(received.path)
            await self.released.wait()
        self.requests.append(received)
        status, headers, body = self.answer_to(received)
        status = self.late if received.path == "/held" else status
        lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", *(f"{name}: {value}" for name, value in headers.items())]
        lines += [] if self.keeps_connections else ["Connection: close"]
        await stream.send(("\r\n".join([*lines, "", ""])).encode() + body)


@dataclass
class SlackReceiver(Receiver):
    """Slack's incoming webhooks as Slack documents them: one webhook, errors as words, and after `pace` messages a pause of 30 s."""

    webhook: str = "/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX"
    error: tuple[int, str] | None = None
    pace: int = 100

    def answer_to(self, received: Received) -> tuple[int, dict[str, str], bytes]:
        if received.path != self.webhook:
            return 404, {}, b"no_service"
        if self.error is not None:
            return self.error[0], {}, self.error[1].encode()
        if self.pace == 0:
            return 429, {"Retry-After": "30"}, b"rate_limited"
        if received.headers["content-type"] != "application/json" or not str(received.json.get("text", "")):
            return 400, {}, b"invalid_payload"
        self.pace -= 1
        return 200, {}, b"ok"


@asynccontextmanager
async def open_receiver(authority: Authority, kind: type[Receiver] = Receiver) -> AsyncIterator[Any]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    served = kind(listener.extra(anyio.abc.SocketAttribute.local_port))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(TLSListener(listener, authority.server, standard_compatible=False).serve, served.serve)
        yield served
        tasks.cancel_scope.cancel()
    await listener.aclose()


async def _read_request(stream: anyio.abc.ByteStream) -> Received:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += await stream.receive()
    method, path, _ = first.split(" ")
    return Received(method, path, headers, body)


@dataclass
class Mailbox:
    """An SMTP server that stores the messages it gets, each as its text, and apart its HTML; or answers every recipient with `refusal`.

    With `answers`, it takes messages and does not say so until the event is set.
    """

    port: int = 0
    messages: list[EmailMessage] = field(default_factory=list)
    htmls: list[str] = field(default_factory=list)
    refusal: str | None = None
    answers: anyio.Event | None = None

    async def handle_RCPT(self, server: Any, session: Any, envelope: Envelope, address: str, options: Any) -> str:
        envelope.rcpt_tos.append(address)
        return self.refusal or "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        message = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        text, html = (message.get_body((kind,)) for kind in ("plain", "html"))
        assert text is not None
        assert html is not None
        self.htmls.append(html.get_content())
        content = text.get_content()
        message.clear_content()
        message.set_content(content)
        self.messages.append(message)
        if self.answers is not None:
            await self.answers.wait()
        return "250 OK"

    def clear(self) -> None:
        self.messages.clear()
        self.htmls.clear()
        self.refusal = self.answers = None

    def link(self, purpose: str) -> str:
        words = [word for message in self.messages for word in str(message.get_content()).split() if f"/email/{purpose}/" in word]
        return words[-1].removeprefix(ORIGIN)


@asynccontextmanager
async def open_mailbox() -> AsyncIterator[Mailbox]:
    box, loop = Mailbox(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(box, loop=loop), "127.0.0.1", 0)
    box.port = server.sockets[0].getsockname()[1]
    yield box
    server.close()
    await server.wait_closed()
