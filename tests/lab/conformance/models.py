"""A model's endpoint as Claude Code, Codex CLI and Gemini CLI call it: it asks for one call of a shell, and then says that all is done."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DONE = "All is done."
COMMAND = "echo hello"


@contextmanager
def serve_model() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(json.dumps({"object": "list", "data": [], "models": []}), "application/json")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.startswith("/v1/messages"):
            self._stream(_of_anthropic(asked))
        elif self.path.startswith("/v1/responses"):
            self._stream(_of_openai(asked))
        elif "GenerateContent" in self.path:
            self._stream([_of_gemini(asked)])
        else:
            self._answer(json.dumps(_of_gemini(asked)), "application/json")

    def _stream(self, events: list[dict[str, Any]]) -> None:
        named = (f"event: {event['type']}\r\n" if "type" in event else "" for event in events)
        self._answer(
            "".join(f"{name}data: {json.dumps(event)}\r\n\r\n" for name, event in zip(named, events, strict=True)), "text/event-stream"
        )

    def _answer(self, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing is logged."""


def _of_anthropic(asked: dict[str, Any]) -> list[dict[str, Any]]:
    is_answered = '"tool_result"' in json.dumps(asked["messages"])
    has_shell = any(tool["name"] == "Bash" for tool in asked.get("tools", ()))
    calls = has_shell and not is_answered
    block: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}} if calls else {"type": "text", "text": ""}
    delta = (
        {"type": "input_json_delta", "partial_json": json.dumps({"command": COMMAND})} if calls else {"type": "text_delta", "text": DONE}
    )
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "content": [], "usage": usage}
    return [
        {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]


def _of_openai(asked: dict[str, Any]) -> list[dict[str, Any]]:
    item: dict[str, Any] = {
        "type": "message",
        "id": "m1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": DONE}],
    }
    if '"function_call_output"' not in json.dumps(asked["input"]):
        arguments = json.dumps({"cmd": COMMAND})
        item = {"type": "function_call", "id": "f1", "call_id": "call_1", "name": "exec_command", "arguments": arguments}
    usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None, "total_tokens": 2}
    return [
        {"type": "response.created", "response": {"id": "r1"}},
        {"type": "response.output_item.done", "item": item},
        {"type": "response.completed", "response": {"id": "r1", "usage": usage}},
    ]


def _of_gemini(asked: dict[str, Any]) -> dict[str, Any]:
    declared = json.dumps(asked.get("tools", ()))
    part: dict[str, Any] = {"text": DONE}
    if '"run_shell_command"' in declared and '"functionResponse"' not in json.dumps(asked["contents"]):
        part = {"functionCall": {"name": "run_shell_command", "args": {"command": COMMAND}}}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}
