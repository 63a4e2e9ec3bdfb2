"""The forms of `server = {…}` in [buildings.NAME], `campus add` and `campus import`."""

from campus.feature import Command, Feature, ServerForm

HERE = "campus.features.foreign_servers"

feature = Feature(
    servers=[
        ServerForm("command", '{command = "…"}', f"{HERE}.remotes:open_command"),
        ServerForm("url", '{url = "https://…/mcp"}', f"{HERE}.remotes:open_address"),
        ServerForm("openapi", '{openapi = "https://…/openapi.json"}', f"{HERE}.apis:open_api"),
    ],
    adapters={"mcp.server.mcpserver.server:MCPServer": f"{HERE}.sessions:over_sdk_server"},
    commands=[
        Command(
            "add",
            f"{HERE}.add:app",
            "Install a server of PyPI or npm in an environment of its own, start it, and write its table into campus.toml.\n\n"
            "The environment is in servers/NAME beside campus.toml, with a lock, from which `campus add --locked` installs the same"
            " elsewhere.",
        ),
        Command(
            "import",
            f"{HERE}.import_servers:import_servers",
            "Write a table [buildings.NAME] into campus.toml for each server that an MCP client's configuration names.\n\n"
            "A campus.toml is written if there is none. The values of env and headers are copied: keep the file private.",
        ),
    ],
)
