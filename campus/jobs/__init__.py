"""Jobs: what is due is run, once in the whole campus, and what failed is tried again."""

from campus.jobs.scheduler import Scheduler
from campus.jobs.task import JobStatus, Task

__all__ = ["JobStatus", "Scheduler", "Task"]
