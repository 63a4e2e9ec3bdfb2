"""Background tasks: calls of tools that go on after their request, in campus's own database, whichever process runs them."""


def task_path(building: str, task_id: str = "{task_id}") -> str:
    """Where a building's task is polled and cancelled over HTTP."""
    return f"/v1/{building}/tasks/{task_id}"
