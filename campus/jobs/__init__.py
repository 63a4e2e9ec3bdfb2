"""Jobs, which run when they are due in one process of the campus, and services, which run all the time in each."""

from campus.jobs.process import Report, report_to_parent, run_in_process
from campus.jobs.scheduler import Scheduler
from campus.jobs.services import ServiceRunner, ServiceTask
from campus.jobs.task import JobStatus, Task, describe_error

__all__ = [
    "JobStatus",
    "Report",
    "Scheduler",
    "ServiceRunner",
    "ServiceTask",
    "Task",
    "describe_error",
    "report_to_parent",
    "run_in_process",
]
