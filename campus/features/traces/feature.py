"""The feature's declaration."""

from campus.feature import Feature

feature = Feature("campus.features.traces.opened:building", always=True)
