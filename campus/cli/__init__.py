"""The `campus` command: one module per group of commands; a CampusError ends it with one sentence and exit code 2."""

import os
import sys
from collections.abc import Sequence

from cyclopts import App

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
    try:
        commands()(arguments)
    except CampusError as error:
        print(*(f"campus: {sentence}" for sentence in str(error).splitlines()), sep="\n", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit must not fail too
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
