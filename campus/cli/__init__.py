"""The command line: one module per family of commands; a CampusError ends it with one sentence and exit code 2."""

import os
import sys
from collections.abc import Sequence

from cyclopts import App

from campus.cli import buildings, keys, ledger, running
from campus.errors import CampusError

__all__ = ["main"]


def commands() -> App:
    """Every command."""
    app = App(name="campus", help="MCP tool servers as plugins: every tool over MCP and over HTTP, free, by key or by payment.")
    app.update(running.app)
    app.update(buildings.app)
    app.command(keys.app)
    app.command(ledger.app)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `campus …`."""
    try:
        commands()(arguments)
    except CampusError as error:
        print(f"campus: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # whoever read our output, `head` for one, has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor does the last flush find anybody
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
