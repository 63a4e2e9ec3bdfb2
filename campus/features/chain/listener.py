"""A small HTTP server for JSON on 127.0.0.1, in threads of this process, so that it answers while the test's event loop waits."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

HOST = "127.0.0.1"
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. `body` is None if it has none."""

    path: str
    authorization: str | None
    body: Any


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: JSON, or bytes that are sent unchanged."""

    status: int
    body: Any


Answer = Callable[[Asked], Answered | None]
"""Returns None to close the connection without an answer."""


class _Server(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int, answer: Answer, *, keep_alive: bool) -> None:
        super().__init__((HOST, port), _Handler)
        self.answer = answer
        self.keep_alive = keep_alive


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # with Nagle's algorithm, an answer in two pieces waits for the peer's delayed acknowledgement
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def _answer(self, body: Any) -> None:
        self.close_connection = self.close_connection or not self.server.keep_alive
        answered = self.server.answer(Asked(self.path, self.headers["authorization"], body))
        if answered is None:
            self.close_connection = True
            return
        content = answered.body if isinstance(answered.body, bytes) else json.dumps(answered.body).encode()
        self.send_response_only(answered.status)
        self.send_header("content-type", "text/html" if isinstance(answered.body, bytes) else "application/json")
        self.send_header("content-length", str(len(content)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def handle(self) -> None:
        """Handle the connection; ignore a peer that is gone, such as a process that the test killed."""
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True

    def finish(self) -> None:
        """Finish the connection; drop what a peer that is gone was to receive."""
        try:
            super().finish()
        except ConnectionError:
            self.connection.close()


class Listener:
    """The server, open within `with`; it can be closed and opened again on the same port. While it is closed, connections are refused."""

    def __init__(self, answer: Answer, *, keep_alive: bool) -> None:
        self._answer = answer
        self._keep_alive = keep_alive
        self._server: _Server | None = None
        self._port = 0

    def __enter__(self) -> "Listener":
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Its URL, once it was opened."""
        return f"http://{HOST}:{self._port}"

    @property
    def is_open(self) -> bool:
        return self._server is not None

    def open(self) -> None:
        if self._server is None:
            server = self._server = _Server(self._port, self._answer, keep_alive=self._keep_alive)
            self._port = server.server_address[1]
            threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True).start()

    def close(self) -> None:
        """Refuse new connections; requests in progress are still answered."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@dataclass
class Switches:
    """Base of the faults of a server, which a test switches on; each stays on until it is reset."""

    listener: Listener = field(repr=False)

    @property
    def down(self) -> bool:
        """Whether connections are refused."""
        return not self.listener.is_open

    @down.setter
    def down(self, down: bool) -> None:
        if down:
            self.listener.close()
        else:
            self.listener.open()

    def clear(self) -> None:
        """Reset all switches."""
        self.down = False
        for each in fields(self):
            if each.name != "listener":
                setattr(self, each.name, each.default)
