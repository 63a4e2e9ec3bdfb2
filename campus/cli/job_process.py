"""The process in which a server runs a job: it opens the job's building alone, and loads nothing that serves."""

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from campus.app import assemble
from campus.cli.options import ConfigFile
from campus.cli.places import read_place
from campus.errors import CampusError
from campus.jobs import Report, describe_error, report_to_parent
from campus.observability.logs import LogFormat, LogLevel, log_to_stderr
from campus.observability.metrics import Metrics

log = logging.getLogger(__name__)


def job_process(job: str, /, *, host: str, port: int, config: ConfigFile, log_level: LogLevel, log_format: LogFormat) -> None:
    """Run a job for a server, which holds its lease, and report to it on standard output."""
    log_to_stderr(log_level, log_format=log_format)
    report_to_parent(partial(_run, job, config, host, port))


async def _run(name: str, file: Path, host: str, port: int) -> Report:
    building = name.partition(".")[0]
    counted = RecordedMetrics()
    try:
        config = read_place(file).serving_at(host, port).only(building)
        async with assemble(config, exclusive=False, made=True, metrics=counted) as campus:
            await campus.plan.jobs[name].run(campus.sites[building])
    except Exception as error:  # the server gets the reason and has no traceback
        if not isinstance(error, CampusError):
            log.exception("job failed", extra={"job": name})
        return Report(describe_error(error), counted.events)
    return Report(None, counted.events)


class RecordedMetrics(Metrics):
    """Metrics whose events another process counts."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, str, Mapping[str, str], int]] = []

    def add(self, building: str, event: str, labels: Mapping[str, str], *, times: int = 1) -> None:
        self.events.append((building, event, labels, times))
