"""The `campus` command: one module per group of commands; a CampusError ends it with one sentence and exit code 2."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from cyclopts import App, CycloptsError
from cyclopts.exceptions import UnusedCliTokensError

from campus.cli import running
from campus.errors import CampusError

__all__ = ["main"]


def commands() -> App:
    """Every command."""
    app = App(name="campus", help="MCP tool servers as plugins: every tool over MCP and over HTTP, free, by key or by payment.")
    app.update(running.app)
    # loaded on use, so that `campus serve` starts without their imports
    app.command("campus.cli.keys:app", name="key", help="Issue, list, renew, rotate and revoke keys; list their clients.")
    app.command("campus.cli.new:app", name="new", help="Write the files of a new building.")
    app.command(
        "campus.cli.ledger:app",
        name="ledger",
        help="What was offered and paid: list, sum, export, funnel, reconcile with the chain, accept unproven payments.",
    )
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `campus …`."""
    if sys.stdout is None:
        _fail("standard output is closed; nothing was done")
    try:
        try:
            commands()(arguments, exit_on_error=False, print_error=False)
        finally:
            sys.stdout.flush()  # here, where it can be told that it failed
    except CycloptsError as error:
        _fail(_usage_error(error))
    except CampusError as error:
        _fail(*str(error).splitlines())
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if _can_be_written():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit must not fail too
        if isinstance(error, BrokenPipeError):  # the reader of our output, such as `head`, has closed it
            sys.exit(1)
        _fail(f"the output cannot be written: {error.strerror}")


def _can_be_written() -> bool:
    """Whether what was printed reaches its reader."""
    try:
        sys.stdout.flush()
    except OSError:
        return False
    return True


def _usage_error(error: CycloptsError) -> str:
    """What is wrong with the words of a command, and where its options are listed."""
    said = str(error).replace("...", "…").removesuffix(".")
    if isinstance(error, UnusedCliTokensError):
        said = f"unexpected argument {' '.join(error.unused_tokens or ())!r}"
    return f"{said[0].lower()}{said[1:]}; see `{' '.join(['campus', *(error.command_chain or ())])} --help`"


def _fail(*sentences: str) -> NoReturn:
    print(*(f"campus: {sentence}" for sentence in sentences), sep="\n", file=sys.stderr)
    sys.exit(2)
