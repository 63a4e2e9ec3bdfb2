"""Problems that more than one part of campus answers with."""

from twins import Problem


def storage_unavailable() -> Problem:
    """503: the database takes no call at the moment; the same call may succeed in a few seconds."""
    return Problem(503, "storage_unavailable", "The data cannot be reached at the moment; try again.", headers={"Retry-After": "5"})


def upstream_unavailable() -> Problem:
    """503: the tool is another server's, which is away and expected back."""
    detail = "the server behind this tool cannot be reached just now; try again after the time in Retry-After"
    return Problem(503, "upstream_unavailable", detail, headers={"Retry-After": "30"})
