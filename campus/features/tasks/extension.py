"""MCP's tasks extension over campus's own tasks: the requests and results of fastmcp-tasks, without its queue.

It is loaded only for a server whose author registered TasksExtension, and so installed fastmcp-tasks. Some of these names are private,
because fastmcp-tasks offers no other way to serve its protocol from another store.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.extensions import ToolCallContinuation
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.tasks import TASKS_EXTENSION_ID
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
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from pydantic import BaseModel
from pydantic_core import from_json

from campus.features.tasks.background import STATUSES, BackgroundTasks
from campus.features.tasks.problems import ENDED
from campus.features.tasks.tables import TaskRow
from campus.paywall.mcp import MCP_GATE, McpPaywall, current_scope
from campus.steps import GatedCall
from twins import extensions_of


class StoredTasks(TasksExtension):
    """Serves tasks/get, tasks/update and tasks/cancel from the database of the campus that was asked. Calls become tasks in its gate."""

    twin_safe = True
    """It takes no part in calls, and every caller sees it."""

    @property
    def _tasks(self) -> BackgroundTasks:
        gate: McpPaywall | None = current_scope().get(MCP_GATE)
        if gate is None or not isinstance(gate.entry, BackgroundTasks):
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found")
        return gate.entry

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
        told = fields_of(task, self._tasks)
        if STATUSES.get(task.status) == "failed":
            reason = ENDED[task.status].detail
            error = {"code": INTERNAL_ERROR, "message": reason}
            return GetTaskResult(**told, status_message=reason, error=error)
        result = from_json(task.result) if task.status == "completed" and task.result is not None else None
        return GetTaskResult(**told, result=result)

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


def serve_stored_tasks(server: FastMCP[Any]) -> None:
    """Have the author's server keep its tasks in the database of the campus that is asked, in place of the queue of fastmcp-tasks.

    `_auto_extensions`: FastMCP lets an explicit extension replace one that a provider brought, and no other.
    """
    if not any(isinstance(each, StoredTasks) for each in extensions_of(server) or ()):
        server._auto_extensions.add(TASKS_EXTENSION_ID)
        server.add_extension(StoredTasks())


async def begin_as_task(tasks: BackgroundTasks, call: GatedCall[Any]) -> ToolResult | BaseModel:
    """Begin the call's task; the result, if its payment bought it before."""
    begun = await tasks.begin(call)
    return CreateTaskResult(**fields_of(begun, tasks)) if isinstance(begun, TaskRow) else begun


def fields_of(task: TaskRow, tasks: BackgroundTasks) -> dict[str, Any]:
    """What its caller is told of a task."""
    return {
        "task_id": task.id,
        "status": STATUSES.get(task.status, task.status),
        "created_at": task.created_at.isoformat(),
        "last_updated_at": task.updated_at.isoformat(),
        "ttl_ms": (task.kept_until - task.created_at) // timedelta(milliseconds=1),
        "poll_interval_ms": tasks.poll_milliseconds(task),
    }
