"""`campus copy`. The storage itself is the entry point `postgresql` of campus.storage."""

from campus.feature import Command, Feature

feature = Feature(
    commands=[
        Command(
            "copy",
            "campus.features.postgres.command:copy",
            "Copy everything that is stored in SQLite to an empty PostgreSQL database; stop the server first.\n\n"
            "Nothing is changed in the SQLite files. Afterwards set [storage] url to that address.",
        )
    ],
)
