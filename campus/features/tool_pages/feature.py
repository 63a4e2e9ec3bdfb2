"""The feature's declaration."""

from campus.feature import Feature

feature = Feature("campus.features.tool_pages.routes:building", always=True, paths=["/docs/api", "/tools"])
