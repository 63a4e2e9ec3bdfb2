"""The feature's declaration."""

from campus.feature import Feature

feature = Feature("campus.features.pricing_pages.routes:building", always=True, paths=["/pricing"])
