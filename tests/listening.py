"""An ASGI app on a port of this machine, in the process of the test."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import uvicorn
from starlette.types import ASGIApp


@asynccontextmanager
async def listening(app: ASGIApp, *, lifespan: Any = "auto") -> AsyncIterator[str]:
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        port.listen()
        serving = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1, lifespan=lifespan))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serving.serve, [port])
            try:
                yield f"http://127.0.0.1:{port.getsockname()[1]}"
            finally:
                serving.should_exit = True
