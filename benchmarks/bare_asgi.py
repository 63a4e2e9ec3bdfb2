"""Baseline of beats: reads the request and sends a bare ASGI response as long as the answer to a beat. `bare_asgi PORT`."""

import sys

from starlette.types import Receive, Scope, Send

from benchmarks.baseline_server import listen

BODY = (
    b'{"ok":true,"monitor_id":"mon_00000000000000000","state":"alive","received_at":"2026-08-21T12:00:00.000000Z",'
    b'"deadline_at":"2026-08-21T13:05:00.000000Z","capsule_stored":false,"note":null}'
)
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))],
}
END = {"type": "http.response.body", "body": BODY}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """The same answer to every request."""
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        await send(START)
        await send(END)


if __name__ == "__main__":
    listen(app, port=int(sys.argv[1]))
