"""campus new building: writes the files of a new building, which works as it is and is meant to be changed."""

import re
import sys
from collections.abc import Sequence
from keyword import iskeyword
from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import App, Parameter

from campus.catalog.loader import installed_buildings
from campus.config import NAME, reserved_names
from campus.errors import LoadError

EXAMPLE = "example"
"""The name of the building in the folder of templates, in files and in their names; with a capital letter its title."""
TEMPLATES = Path(__file__).with_name("new_building")
AS_TEMPLATE = ".template"
"""The end of the name of a file that tools would otherwise take for one of campus's own repository."""
WRITTEN = (".py", ".html", ".toml", AS_TEMPLATE)
LONGEST_NAME = 48

app = App(name="new", version_flags=[])


@app.command
def building(
    name: Annotated[str, Parameter(help="Its name: lower-case letters, digits and _, a letter first. Addresses begin with it.")],
    /,
    *,
    folder: Annotated[Path | None, Parameter(help="Where to write it; default: campus-NAME.")] = None,
) -> None:
    """Write a new building: tools, a table with its migration, a job, a page, a test and its CI, in a package of its own."""
    _check_name(name)
    target = folder or Path(f"campus-{name}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise LoadError(f"{target} exists already; name another folder with --folder, or remove it")
    try:
        _write(name, target)
    except OSError as error:
        raise LoadError(f"{target} cannot be written: {error.strerror}; name another folder with --folder") from None
    print("\n".join(_next_steps(name, target)))


def _check_name(name: str) -> None:
    """Refuse a name that campus.toml, the database or the addresses could not have, or that another building has."""
    if not re.fullmatch(NAME, name) or len(name) > LONGEST_NAME:
        raise LoadError(f"{name!r} cannot name a building; use at most {LONGEST_NAME} lower-case letters, digits and _, a letter first")
    if iskeyword(name) or name in reserved_names() or name in {one.name for one in installed_buildings()}:
        raise LoadError(f"the name {name!r} is taken by Python, by campus itself or by an installed building; choose another")


def _write(name: str, target: Path) -> None:
    title = name.replace("_", " ").capitalize()
    for source in sorted(TEMPLATES.rglob("*")):
        if source.is_file() and source.suffix in WRITTEN:
            path = target / str(source.relative_to(TEMPLATES)).replace(EXAMPLE, name).removesuffix(AS_TEMPLATE)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = source.read_text(encoding="utf-8").replace(EXAMPLE, name).replace(EXAMPLE.capitalize(), title)
            path.write_text(text, encoding="utf-8")


def _next_steps(name: str, target: Path) -> Sequence[str]:
    """What to do with it, as commands to copy."""
    python = quote(sys.executable)
    campus = quote(sys.argv[0])
    at = quote(str(target))
    return (
        f"{target} has the building {name}: tools, a table, a job, a page and a test. Change them into yours. To try it:",
        "",
        f"  {python} -m pip install --no-deps -e {at}",
        f"  {python} -m pytest {at}",
        f"  {campus} dev {at}     # then open http://localhost:8000/{name}; a saved file is loaded at once",
        "",
        f"To serve it with your other buildings, write [buildings.{name}] into their campus.toml.",
    )
