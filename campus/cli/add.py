"""campus add …: writes the table of a building that is somewhere else into campus.toml; each command is in a module of its own."""

from cyclopts import App

from campus.cli.add_package import add

OPENAPI = (
    "Write the table of an API into campus.toml, whose operations become tools and routes, with a suggested price for each.\n\n"
    "Its document is read, and no operation is called. No value of a secret is written."
)
app = App(name="add", version_flags=[], default_command=add)
app.command("campus.cli.add_openapi:openapi", name="openapi", help=OPENAPI)
