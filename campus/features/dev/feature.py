"""`campus dev`, and the process of one version, which it starts."""

from campus.feature import Command, Feature

feature = Feature(
    commands=[
        Command(
            "dev",
            "campus.features.dev.command:dev",
            "Serve what you edit: load each saved file at once, show each call, and print a key for every scope, until interrupted.\n\n"
            "No call is refused meanwhile. What cannot be loaded is one sentence, and the last good version is served on.",
        ),
        Command("dev-versions", "campus.features.dev.version:dev_versions", is_shown=False),
    ]
)
