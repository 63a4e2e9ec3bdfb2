"""The `campus` command: one module per group of commands; a CampusError ends it with one sentence and exit code 2."""

import os
import select
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import NoReturn

from cyclopts import App, CycloptsError
from cyclopts.exceptions import UnusedCliTokensError

from campus.cli.features import add_commands
from campus.errors import CampusError

__all__ = ["main"]


RUNNING = {
    "serve": "Serve the buildings that campus.toml names, or a FastMCP server in one file, until interrupted.",
    "run": "Run a job once, now, with or without a running server.",
    "check": "Report what is wrong with the configuration, the database and what the buildings depend on; exit code 1 if there are errors.",
    "audit": "Check the stored data for consistency; exit code 1 when anything is inconsistent.",
    "migrate": (
        "Bring every database to the installed release, as its first server does; the log says what is done, and what waits for --contract."
        "\n\n"
        "On PostgreSQL, servers of the release before go on serving, except with --contract; a server on SQLite must be stopped first."
    ),
    "tools": "List every tool of every building with its route, tier and price; opens no database.",
    "migration": "Write the next step of a building's database history from its tables; read it before you commit it.",
}
"""The commands of running.py with their help, which are their docstrings."""
ELSEWHERE = {
    "backup": (
        "campus.cli.backups:backup",
        "Write every SQLite database into one file, all as of one moment, also while the server runs; for PostgreSQL use pg_dump.\n\n"
        "Secrets of the environment and campus.toml are not in it.",
    ),
    "restore": (
        "campus.cli.backups:restore",
        "Put the databases of a backup in place, then audit them; exit code 1 when anything is inconsistent. Stop the server first.\n\n"
        "A backup of an older release is migrated. Nothing is changed if the file was damaged or is of a newer release.",
    ),
}
"""The commands of other modules, each with its function and its help, which is the docstring."""


def commands() -> App:
    """Every command. Each is imported when it is used: FastMCP takes a second to import, and the commands for keys need none of it."""
    about = "MCP tool servers as plugins: every tool over MCP and over HTTP, free, by key or by payment."
    app = App(name="campus", help=about, version=partial(version, "mcp-campus"))
    for name, text in RUNNING.items():
        app.command(f"campus.cli.running:{name}", name=name, help=text)
    for name, (function, text) in ELSEWHERE.items():
        app.command(function, name=name, help=text)
    app.command("campus.cli.job_process:job_process", name="job-process", show=False)
    add_commands(app)
    app.command("campus.cli.keys:app", name="key", help="Issue, list, renew, rotate and revoke keys; list their clients.")
    return app


def main(arguments: Sequence[str] | None = None, *, imported: Callable[[], None] | None = None) -> None:
    """Run `campus …`; `imported` is called when the command's code is, before it runs."""
    if sys.stdout is None:
        _fail("standard output is closed; nothing was done")
    try:
        try:
            command, bound, _ = commands().parse_args(arguments, exit_on_error=False, print_error=False)
            if imported:
                imported()
            command(*bound.args, **bound.kwargs)
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
    asked = select.poll()
    asked.register(sys.stdout, 0)
    return not asked.poll(0)  # a pipe whose reader is gone: what was lost before is not there to be flushed


def _usage_error(error: CycloptsError) -> str:
    """What is wrong with the words of a command, and where its options are listed."""
    said = str(error).replace("...", "…").removesuffix(".")
    if isinstance(error, UnusedCliTokensError):
        said = f"unexpected argument {' '.join(error.unused_tokens or ())!r}"
    return f"{said[0].lower()}{said[1:]}; see `{' '.join(['campus', *(error.command_chain or ())])} --help`"


def _fail(*sentences: str) -> NoReturn:
    print(*(f"campus: {sentence}" for sentence in sentences), sep="\n", file=sys.stderr)
    sys.exit(2)
