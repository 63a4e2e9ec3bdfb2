"""The supervisor of `campus serve --workers`, and the process of one worker, which it starts."""

from campus.feature import Command, Feature

feature = Feature(
    supervisor="campus.features.workers.supervisor:supervise",
    commands=[Command("worker", "campus.features.workers.worker:worker", is_shown=False)],
)
