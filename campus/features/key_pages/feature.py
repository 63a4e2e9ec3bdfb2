"""The feature's declaration."""

from campus.feature import Feature

feature = Feature("campus.features.key_pages.routes:building", always=True, paths=["/keys"])
