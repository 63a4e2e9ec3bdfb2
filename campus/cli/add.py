"""campus add …: writes the table of a building that is somewhere else into campus.toml; each command is in a module of its own."""

from cyclopts import App

from campus.cli.add_package import add

app = App(name="add", version_flags=[], default_command=add)
