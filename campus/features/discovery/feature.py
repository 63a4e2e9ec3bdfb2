"""The feature's declaration."""

from campus.feature import Feature

feature = Feature("campus.features.discovery.routes:building", always=True)
