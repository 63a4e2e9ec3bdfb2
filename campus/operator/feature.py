"""The feature's declaration."""

from campus.feature import Feature

feature = Feature("campus.operator.routes:building", always=True)
