"""MCP's tasks extension over campus's own tasks: the requests and results of fastmcp-tasks, without its queue.

It is loaded only for a server whose author registered TasksExtension, and so installed fastmcp-tasks. Some of these names are private,
because fastmcp-tasks offers no other way to serve its protocol from another store.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from fastmcp.server.extensions import ToolCallContinuation
from fastmcp.tools.base import ToolResult
from fastmcp_tasks import TasksExtension, wire_production
from fastmcp_tasks.models import (
    CancelTaskResult,
    CreateTaskResult,
    GetTaskParams,
    GetTaskResult,
    UpdateTaskParams,
    UpdateTaskResult,
)
from mcp import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from pydantic import BaseModel
from pydantic_core import from_json

from campus.paywall.gate import GatedCall
from campus.paywall.mcp import current_scope
from campus.paywall.tasks import STATUSES, WITHOUT_RESULT, BackgroundTasks
from campus.tasks.tables import TaskRow


class StoredTasks(TasksExtension):
    """Serves tasks/get, tasks/update and tasks/cancel from campus's database. Calls become tasks in the gate, not here."""

    twin_safe = True
    """It takes no part in calls, and every caller sees it."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        super().__init__()
        self._tasks = tasks

    async def begin(self, call: GatedCall[Any]) -> ToolResult | BaseModel:
        """Begin the call's task; the result, if its payment bought it before."""
        begun = await self._tasks.begin(call)
        return CreateTaskResult(**self._fields(begun)) if isinstance(begun, TaskRow) else begun

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Let mcp send a task as the result of a call."""
        wire_production.install()
        try:
            yield
        finally:
            wire_production.uninstall()

    async def intercept_tool_call(self, params: Any, context: Any, call_next: ToolCallContinuation) -> ToolResult | BaseModel:
        """Pass every call on: it has passed the gate."""
        return await call_next()

    async def _handle_get(self, ctx: Any, params: GetTaskParams) -> GetTaskResult:
        task = await self._found(ctx, params.task_id)
        if STATUSES.get(task.status) == "failed":
            reason = WITHOUT_RESULT[task.status]().detail
            error = {"code": INTERNAL_ERROR, "message": reason}
            return GetTaskResult(**self._fields(task), status_message=reason, error=error)
        result = from_json(task.result) if task.status == "completed" and task.result is not None else None
        return GetTaskResult(**self._fields(task), result=result)

    async def _handle_update(self, ctx: Any, params: UpdateTaskParams) -> UpdateTaskResult:
        await self._found(ctx, params.task_id)
        return UpdateTaskResult()  # no task waits for an answer

    async def _handle_cancel(self, ctx: Any, params: GetTaskParams) -> CancelTaskResult:
        await self._tasks.cancelled(await self._found(ctx, params.task_id))
        return CancelTaskResult()

    async def _found(self, ctx: Any, task_id: str) -> TaskRow:
        self._check_task_request(ctx, task_id)
        task = await self._tasks.seen(task_id, current_scope())
        if task is None:
            raise MCPError(code=INVALID_PARAMS, message=f"Task {task_id} not found")
        return task

    def _fields(self, task: TaskRow) -> dict[str, Any]:
        return {
            "task_id": task.id,
            "status": STATUSES.get(task.status, task.status),
            "created_at": task.created_at.isoformat(),
            "last_updated_at": task.updated_at.isoformat(),
            "ttl_ms": (task.kept_until - task.created_at) // timedelta(milliseconds=1),
            "poll_interval_ms": self._tasks.poll_milliseconds(task),
        }
