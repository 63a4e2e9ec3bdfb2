"""The `campus` command: one module per group of commands; a CampusError ends it with one sentence and exit code 2."""

import ast
import os
import select
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from cyclopts import App, CycloptsError
from cyclopts.exceptions import UnusedCliTokensError

from campus.cli.features import add_commands
from campus.errors import CampusError

__all__ = ["main"]


COMMANDS = {
    **dict.fromkeys(("serve", "run", "check", "audit", "migrate", "tools", "migration"), "running"),
    **dict.fromkeys(("backup", "restore"), "backups"),
}
"""Each command that is a function of its name, and the module that has it."""


def commands() -> App:
    """Every command. Each is imported when it is used: FastMCP takes a second to import, and the commands for keys need none of it."""
    about = "MCP tool servers as plugins: every tool over MCP and over HTTP, free, by key or by payment."
    app = App(name="campus", help=about, version=partial(version, "mcp-campus"))
    texts = {name: text for module in {*COMMANDS.values()} for name, text in docstrings_of(module).items()}
    for name, module in COMMANDS.items():
        app.command(f"campus.cli.{module}:{name}", name=name, help=texts[name])
    app.command("campus.cli.job_process:job_process", name="job-process", show=False)
    add_commands(app)
    app.command("campus.cli.keys:app", name="key", help="Issue, list, renew, rotate and revoke keys; list their clients.")
    return app


def docstrings_of(module: str) -> dict[str, str | None]:
    """Those of the functions of a module of this package, which is read and not imported."""
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
    return {node.name: ast.get_docstring(node) for node in tree.body if isinstance(node, ast.FunctionDef)}


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
