"""An MCP server that answers whatever a test gives it: tools, results and streams of any shape, as JSON over HTTP.

`python hostile_server.py FILE` does the same over stdio. FILE is a module with TOOLS, and with `call(name, arguments)`, which returns a
result; over HTTP it may return an iterator of bytes, which become an event stream.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

INITIALIZED = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "hostile", "version": "1"}}


def tool(name: str, schema: Any = None, **more: Any) -> dict[str, Any]:
    read_only = {"annotations": {"readOnlyHint": True}}
    return {"name": name, "inputSchema": {"type": "object"} if schema is None else schema, **read_only, **more}


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


class Hostile:
    """What the server lists and returns; both may be changed while it serves."""

    def __init__(self, tools: Any = (), call: Callable[[str, dict[str, Any]], Any] = lambda name, arguments: text(name)) -> None:
        self.tools = tools
        self.call = call
        self.lists = 0
        self.port = 0

    def answer(self, message: dict[str, Any]) -> Any:
        match message["method"]:
            case "initialize":
                return INITIALIZED
            case "tools/list":
                self.lists += 1
                cursor = (message.get("params") or {}).get("cursor")
                return self.tools(cursor) if callable(self.tools) else {"tools": list(self.tools)}
            case "tools/call":
                return self.call(message["params"]["name"], message["params"].get("arguments") or {})
        return None

    def reply(self, message: dict[str, Any]) -> Any:
        """The whole reply, or an iterator of bytes."""
        result = self.answer(message)
        if isinstance(result, Iterator):
            return result
        if result is None:
            return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no such method"}}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}


@contextmanager
def hostile(server: Hostile) -> Iterator[Hostile]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "id" not in message:
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            reply = server.reply(message)
            self.send_response(200)
            if isinstance(reply, Iterator):
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                self.close_connection = True
                try:
                    for chunk in reply:
                        self.wfile.write(chunk)
                        self.wfile.flush()
                except OSError:
                    return
                return
            body = json.dumps(reply).encode()
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                self.close_connection = True

        def do_GET(self) -> None:
            self.send_error(405)

        do_DELETE = do_GET

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", server.port), Handler)
    listener.daemon_threads = True
    listener.handle_error = lambda *_: None  # type: ignore[method-assign]  # its callers hang up
    server.port = listener.server_port
    thread = Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()


def over_stdio(server: Hostile) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            print(json.dumps(server.reply(message)), flush=True)
