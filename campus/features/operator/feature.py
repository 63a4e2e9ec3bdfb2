"""The feature's declaration."""

from campus.feature import Feature

feature = Feature("campus.features.operator.opened:building", always=True)
