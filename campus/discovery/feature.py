"""The feature's declaration."""

from campus.feature import Feature

feature = Feature("campus.discovery.routes:building", always=True)
