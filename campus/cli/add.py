"""campus add …: writes the table of a building that is somewhere else into campus.toml; each command is in a module of its own."""

from cyclopts import App

app = App(name="add", version_flags=[])
