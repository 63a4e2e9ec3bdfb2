"""`campus alerts`, and the tables of mailboxes."""

from campus.feature import Command, Feature

feature = Feature(
    "campus.features.alerts.opened:building",
    tables="campus.features.alerts.tables:Tables",
    always=True,
    traces={("campus.features.alerts.dispatcher:Dispatcher", "_sent"): "send alert"},
    commands=[
        Command(
            "alerts",
            "campus.features.alerts.command:alerts",
            "List the targets that alerts do not reach, with the reason: those that fail, the longest first, then the disabled ones.",
        )
    ],
)
