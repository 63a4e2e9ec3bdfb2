"""`campus init` and `campus new`."""

from campus.feature import Command, Feature

feature = Feature(
    commands=[
        Command(
            "init",
            "campus.features.scaffold.init:init",
            "Write a campus.toml with comments, which serves the directory, or also a FastMCP server in one file.",
        ),
        Command("new", "campus.features.scaffold.new:app", "Write the files of a new building."),
    ]
)
