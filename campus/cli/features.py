"""The commands that features add."""

from cyclopts import App

from campus.installed import installed_features


def add_commands(app: App, group: str = "") -> None:
    """Add those of a group, such as "key " for `campus key usage`; without one, those of `campus` itself."""
    for feature in installed_features().values():
        for command in feature.commands:
            name = command.name.removeprefix(group)
            if command.name.startswith(group) and " " not in name:
                app.command(command.function, name=name, help=command.help or None, show=command.is_shown)
