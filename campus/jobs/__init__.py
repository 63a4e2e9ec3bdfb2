"""Jobs, which run when they are due in one process of the campus, and services, which run all the time in each."""

from campus.jobs.scheduler import Scheduler
from campus.jobs.services import ServiceRunner, ServiceTask
from campus.jobs.task import JobStatus, Task

__all__ = ["JobStatus", "Scheduler", "ServiceRunner", "ServiceTask", "Task"]
