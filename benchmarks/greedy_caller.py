"""Sends a request again on each of many connections as soon as it is answered, from an address of its own: `PORT ADDRESS CONNECTIONS`.

The request is read from standard input. A connection that is closed is opened anew.
"""

import asyncio
import os
import sys
from functools import partial

from httptools import HttpResponseParser
from uvloop import run

HOST = "127.0.0.1"
LEAST_IMPORTANT = 19


class Caller(asyncio.Protocol):
    """One connection."""

    def __init__(self, request: bytes, closed: asyncio.Event) -> None:
        self._request = request
        self._closed = closed
        self._parser = HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport
        self.on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Parse the received bytes."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Send the next request."""
        self._transport.write(self._request)  # type: ignore[attr-defined]  # uvloop's own

    def connection_lost(self, exc: Exception | None) -> None:
        """Have it opened anew."""
        self._closed.set()


async def call(request: bytes, port: int, address: str) -> None:
    """Call on one connection after the other, without end."""
    loop = asyncio.get_running_loop()
    while True:
        closed = asyncio.Event()
        try:
            await loop.create_connection(partial(Caller, request, closed), HOST, port, local_addr=(address, 0))
            await closed.wait()
        except OSError:
            await asyncio.sleep(0.01)


async def main(request: bytes, port: int, address: str, connections: int) -> None:
    """Call on all connections."""
    await asyncio.gather(*(call(request, port, address) for _ in range(connections)))


if __name__ == "__main__":
    os.nice(LEAST_IMPORTANT)  # the quiet caller, on the same CPU, must not wait for this one
    if os.sched_getscheduler(0) == os.SCHED_RR:
        os.sched_setparam(0, os.sched_param(1))
    run(main(sys.stdin.buffer.read(), int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
