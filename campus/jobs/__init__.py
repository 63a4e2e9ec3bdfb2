"""Jobs: each runs when it is due, in one process of the campus, and again after a failure."""

from campus.jobs.scheduler import Scheduler
from campus.jobs.task import JobStatus, Task

__all__ = ["JobStatus", "Scheduler", "Task"]
