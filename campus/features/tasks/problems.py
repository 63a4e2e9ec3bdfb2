"""The codes of the problems of tasks, explained, and those that end a task without a result."""

from collections.abc import Mapping
from typing import NamedTuple

PROBLEMS: Mapping[str, str] = {
    "too_many_tasks": "You have as many running or kept tasks as one may have. Cancel one, or try again after the time in Retry-After.",
    "tasks_busy": "Too many tasks are running or kept. Nothing is charged; try again after the time in Retry-After.",
    "task_cancelled": "The task was cancelled, and was not charged.",
    "task_key_ended": "The key that began the task was revoked or has ended, which ended the task. It was not charged.",
    "task_interrupted": "The process that ran the task stopped before it ended. It was not charged; call the tool again.",
    "result_too_large": "The task's result is too large to be kept, and was not charged.",
}


class Ended(NamedTuple):
    """A problem whose words are always the same."""

    status: int
    code: str
    detail: str


ENDED: Mapping[str, Ended] = {
    "cancelled": Ended(409, "task_cancelled", "the task was cancelled, and nothing was charged"),
    "key_ended": Ended(
        403, "task_key_ended", "the key that began the task was revoked or has ended: the task was stopped, and nothing was charged"
    ),
    "interrupted": Ended(
        500, "task_interrupted", "the process that ran the task stopped before it ended; nothing was charged. Call the tool again"
    ),
}
"""By the state of a task, why it has no result and never will."""
