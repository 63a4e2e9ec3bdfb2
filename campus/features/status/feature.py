"""The feature's declaration."""

from campus.feature import Feature

feature = Feature(
    "campus.features.status.pages:building",
    tables="campus.features.status.tables:Tables",
    always=True,
    paths=["/status"],
)
