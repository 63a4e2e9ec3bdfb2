"""`campus key usage`; there is no table in campus.toml."""

from datetime import timedelta

from campus.feature import Command, Feature

KEPT = timedelta(days=400)  # How long a day's calls are kept.

feature = Feature(
    "campus.features.usage.step:building",
    tables="campus.features.usage.tables:Tables",
    commands=[
        Command(
            "key usage",
            "campus.features.usage.command:usage",
            "List what each key called, by day (UTC) and tool; a running server's calls appear within 10 seconds.",
        )
    ],
    always=True,
)
