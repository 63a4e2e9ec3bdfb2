"""A worker of campus serve --workers: it serves on the supervisor's sockets, and tells it when it does, or why it does not."""

import socket
from functools import partial
from pathlib import Path

import anyio

from campus.cli.places import read_place
from campus.cli.processes import send_report, stop_with_parent
from campus.cli.running import job_command, serve_campus
from campus.errors import CampusError
from campus.features.workers.metrics import WorkerMetrics
from campus.observability.logs import LogFormat, LogLevel, log_to_stderr


def worker(
    number: int,
    /,
    *,
    reports: int,
    listener: int,
    operators: int | None = None,
    folder: Path,
    config: Path,
    host: str,
    port: int,
    admin: str,
    access_log: bool = False,
    log_level: LogLevel,
    log_format: LogFormat,
    serve_all: bool = False,
) -> None:
    """Serve until the supervisor ends; with `serve_all` only if the code of every building can be loaded."""
    log_to_stderr(log_level, log_format=log_format, requests=access_log)
    with socket.socket(fileno=reports) as channel:
        stop_with_parent(channel)
        try:
            settings = read_place(config).serving_at(host, port, admin=admin)
            serving = partial(
                serve_campus,
                settings,
                partial(job_command, config, settings, ("--log-level", log_level, "--log-format", log_format)),
                listener=socket.socket(fileno=listener),
                operators=None if operators is None else socket.socket(fileno=operators),
                on_serving=lambda _: send_report(channel, {"served": settings.url}),
                metrics=WorkerMetrics(folder, number),
                announces=number == 1,
                closes_failed=not serve_all,
            )
            anyio.run(serving, backend_options={"use_uvloop": True})
        except CampusError as error:
            send_report(channel, {"error": str(error)})
