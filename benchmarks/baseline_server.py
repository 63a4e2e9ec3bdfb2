"""Serves the baselines as `campus serve` is served: uvicorn on uvloop and httptools, without an access log."""

import uvicorn
from starlette.types import ASGIApp


def listen(app: ASGIApp, *, port: int) -> None:
    """Serve until SIGTERM."""
    uvicorn.run(app, host="127.0.0.1", port=port, loop="uvloop", http="httptools", log_level="warning", access_log=False)
