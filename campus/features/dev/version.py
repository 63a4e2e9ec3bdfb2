"""The versions of an author's code for campus dev: each in a process of its own, which serves on its parent's socket and shows calls.

A process that has imported campus, and nothing of the author's, forks for each version: importing takes longer than the author's code.
"""

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from importlib import import_module, invalidate_caches
from pathlib import Path
from time import localtime, strftime
from traceback import extract_tb, format_exception_only, format_list
from typing import Any

import anyio
import uvicorn.lifespan.off  # noqa: F401  # imported when a loop starts, like the next, and anyio's backend
import uvloop  # noqa: F401

from campus.app import Campus
from campus.catalog.server import OpenBuilding
from campus.cli.local_key import open_to_strangers
from campus.cli.places import read_place
from campus.cli.processes import send_report, stop_with_parent
from campus.cli.running import job_command, serve_campus
from campus.errors import CampusError
from campus.features.dev.command import folders_of
from campus.observability.logs import LogLevel, OneLine, log_to_stderr
from campus.pricing import Offer


def dev_versions(place: Path, /, *, orders: int, listener: int, host: str, port: int, log_level: LogLevel) -> None:
    """Fork for each socket that arrives on `orders`, until the parent ends; the child serves a version and reports on that socket."""
    with suppress(ImportError):
        import_module("anyio._backends._asyncio")
    gc.freeze()  # what is imported is shared with all versions
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended versions leave no zombies; the parent sees their sockets close
    with socket.socket(fileno=orders) as channel:
        while fds := socket.recv_fds(channel, 1, 1)[1]:
            if os.fork() == 0:
                break
            os.close(fds[0])
        else:
            return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(fileno=fds[0]) as reports:
        send_report(reports, {"pid": os.getpid()})
        stop_with_parent(reports)
        _serve(place, socket.socket(fileno=listener), reports, host=host, port=port, log_level=log_level)


def _serve(place: Path, listener: socket.socket, reports: socket.socket, *, host: str, port: int, log_level: LogLevel) -> None:
    """Load what `place` names and serve it; the parent is told what is served, or why nothing is."""
    sys.dont_write_bytecode = True  # Python takes two saves of one length within a second for the same
    invalidate_caches()  # of the process that was forked, which does not know what was installed since
    log_to_stderr(log_level, requests=True)
    try:
        settings = read_place(place).serving_at(host, port, admin="off").locked()
        logging.getLogger().handlers[0].setFormatter(AuthorsLinesFirst(folders_of(settings)))
        jobs = partial(job_command, place, settings, ("--log-level", log_level, "--log-format", "text"))
        serving = partial(serve_campus, settings, jobs, listener=listener, on_serving=partial(_report, reports))
        anyio.run(serving, backend_options={"use_uvloop": True})
    except CampusError as error:
        missing = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
        send_report(reports, {"error": str(error), "missing": missing})


def _report(reports: socket.socket, campus: Campus) -> None:
    access = logging.getLogger("campus.access")
    access.handlers, access.propagate = [CallLines(campus.plan.opened)], False
    url = campus.plan.config.url
    served = [f"{one.name} at {url}{one.mcp_path}: {', '.join(one.operations)}" for one in campus.plan.opened]
    served += [f"everybody may call without a key: {strangers}"] if (strangers := open_to_strangers(campus.plan)) else []
    send_report(reports, {"served": [*served, *(f"{one.name} cannot be reached" for one in campus.plan.closed)]})


class AuthorsLinesFirst(OneLine):
    def __init__(self, folders: Sequence[Path]) -> None:
        super().__init__()
        self._folders = folders

    def formatException(self, ei: Any) -> str:
        whole, error = super().formatException(ei), ei[1]
        while error:
            if own := [frame for frame in extract_tb(error.__traceback__) if self._is_authors(frame.filename)]:
                return "".join((*format_exception_only(error), *format_list(own), whole))
            error = error.__cause__ or error.__context__
        return whole

    def _is_authors(self, file: str) -> bool:
        path = Path(file)
        return "site-packages" not in path.parts and any(path.is_relative_to(folder) for folder in self._folders)


class CallLines(logging.Handler):
    def __init__(self, opened: tuple[OpenBuilding, ...]) -> None:
        super().__init__()
        self._tools: dict[str, tuple[str, str, Offer]] = {}
        for one in opened:
            for name, operation in one.operations.items():
                self._tools[f"{one.name}:{name}"] = f"{one.name}.{name}", "mcp", one.offers[name]
                for method in operation.methods:
                    self._tools[f"{method} {operation.path}"] = f"{one.name}.{name}", "http", one.offers[name]

    def emit(self, record: logging.LogRecord) -> None:
        data = vars(record)
        if "route" not in data:
            return
        called = f"{data['method'].replace('HEAD', 'GET')} {data['route']}"
        name, frame, offer = self._tools.get(data["route"]) or self._tools.get(called) or (called, "", None)
        price = price_of(offer) if offer else ""
        status = data["status"]
        outcome = HTTPStatus(status).phrase if status in set(HTTPStatus) else "caller left"
        words = f"{name:<28} {frame:<4} {data.get('key', data['client']):<16} {price:<8} {data['ms']:>8} ms  {status} {outcome}"
        print(f"{strftime('%H:%M:%S', localtime(record.created))} {words}\n", end="", file=sys.stderr, flush=True)  # one write


def price_of(offer: Offer) -> str:
    if offer.access.is_free:
        return "free"
    return "key" if offer.price is None else offer.cost
