"""Problems that more than one part of campus answers with."""

from twins import Problem


def storage_unavailable() -> Problem:
    """503: the database takes no call at the moment; the same call may succeed in a few seconds."""
    return Problem(503, "storage_unavailable", "The data cannot be reached just now; try again.", headers={"Retry-After": "5"})
