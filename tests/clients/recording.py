"""A proxy in front of a served campus that records what each client asked, with which key, and what it was answered."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests import patient

HOP = {"connection", "content-length", "content-encoding", "transfer-encoding", "keep-alive", "date", "server"}
ANSWER_SECONDS = 60
ENDPOINTS = {"/register", "/authorize", "/token", "/revoke"}
"""Where clients expect OAuth if no document names its addresses."""


@dataclass(frozen=True)
class Asked:
    """One request and its answer."""

    method: str
    path: str
    authorization: str | None
    status: int


@dataclass
class Recorder:
    """The proxy's address, and what was asked since `clear`."""

    url: str
    asked: list[Asked] = field(default_factory=list)

    def keys(self, path: str) -> set[str | None]:
        return {one.authorization for one in self.asked if one.path == path and one.method == "POST"}

    def oauth(self) -> list[Asked]:
        return [one for one in self.asked if ".well-known/o" in one.path or one.path in ENDPOINTS]


class QuietServer(ThreadingHTTPServer):
    """A server that says nothing when a client hangs up."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: the faults say what matters."""


@contextmanager
def recording(target: str) -> Iterator[Recorder]:
    with patient.Client(base_url=target, timeout=ANSWER_SECONDS) as http:

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name: value for name, value in self.headers.items() if name.lower() not in {*HOP, "host", "accept-encoding"}}
                answer = http.request(self.command, self.path, content=body, headers=headers)
                path = self.path.partition("?")[0]
                recorder.asked.append(Asked(self.command, path, self.headers.get("Authorization"), answer.status_code))
                self.send_response(answer.status_code)
                for name, value in answer.headers.items():
                    if name not in HOP:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.content)

            do_GET = do_POST = do_DELETE = do_HEAD = do_OPTIONS = _pass_on

            def log_message(self, format: str, *arguments: Any) -> None:
                """Nothing: the faults say what matters."""

        server = QuietServer(("127.0.0.1", 0), Handler)
        recorder = Recorder(f"http://127.0.0.1:{server.server_address[1]}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield recorder
        finally:
            server.shutdown()
            server.server_close()
