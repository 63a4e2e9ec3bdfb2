"""`campus credits`; there is no table in campus.toml: what a key may spend are keys of [products.NAME]."""

from campus.feature import Command, Feature

BALANCE = "Campus-Credits"  # The header that says what a key has left, in US dollars.

feature = Feature(
    "campus.features.credits.opened:building",
    tables="campus.features.credits.tables:Tables",
    commands=[
        Command("credits", "campus.features.credits.command:app", "What keys have left to spend on calls: list, statement, correct."),
    ],
    always=True,
    headers=(BALANCE,),
)
