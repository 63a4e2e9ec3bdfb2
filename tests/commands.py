"""Runs `campus …` in the test's process, ten times quicker than in a separate one."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from campus.cli import main
from campus.observability.logs import LIBRARY_LEVELS


@dataclass(frozen=True)
class Ran:
    """The output and exit code of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Ran]


def command_of(capsys: pytest.CaptureFixture[str]) -> Command:
    def ran(*words: str) -> Ran:
        code = 0
        with logging_as_it_was():
            try:
                main(words)
            except SystemExit as ended:
                code = int(ended.code or 0)
        return Ran(code, *capsys.readouterr())

    return ran


@contextmanager
def logging_as_it_was() -> Iterator[None]:
    loggers = [logging.getLogger(), *(logging.getLogger(name) for name in (*LIBRARY_LEVELS, "campus.access"))]
    before = [(logger, logger.level, logger.handlers[:], logger.propagate) for logger in loggers]
    try:
        yield
    finally:
        for logger, level, handlers, propagate in before:
            logger.setLevel(level)
            logger.handlers[:] = handlers
            logger.propagate = propagate
