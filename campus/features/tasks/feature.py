"""Background tasks, which need no table in campus.toml."""

from campus.feature import Feature

feature = Feature("campus.features.tasks.opened:building", tables="campus.features.tasks.tables:Tables", always=True)
