"""The feature's declaration."""

from campus.feature import Feature

feature = Feature("campus.features.documentation.routes:building", always=True, paths=["/docs"])
