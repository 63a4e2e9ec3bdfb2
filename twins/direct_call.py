"""Calls a tool's function directly, without its server: validated arguments, and the context variables that FastMCP sets.

Arguments are validated against the function's visible signature before anything runs, so that a caller's mistake
(422) is never confused with a fault of the function (500).
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast, get_type_hints

import anyio
import anyio.to_thread
from fastmcp import FastMCP
from fastmcp.server.dependencies import resolve_dependencies
from fastmcp.tools import FunctionTool
from pydantic import TypeAdapter
from pydantic_core import to_json
from starlette.types import Scope
from uncalled_for import get_dependency_parameters

from twins.canonical import canonical_arguments
from twins.fastmcp_internals import ToolContext, reset, shared_scope
from twins.injection import RequestDependency
from twins.tool_errors import timed_out


class DirectTool:
    """One function tool of one server, called without the server."""

    def __init__(self, server: FastMCP[Any], tool: FunctionTool) -> None:
        self._context = ToolContext(server)
        self._tool = tool
        self._function = tool.fn
        injected = get_dependency_parameters(tool.fn)
        self._request_dependencies = {name: value for name, value in injected.items() if isinstance(value, RequestDependency)}
        self._needs_resolution = len(self._request_dependencies) < len(injected)
        self._validator = argument_adapter(tool.fn, without=injected).validator
        self._required = frozenset(tool.parameters.get("required", ()))
        self._strict = server.strict_input_validation
        self._is_async = inspect.iscoroutinefunction(_innermost(tool.fn))
        self._in_thread = not self._is_async and tool.run_in_thread and not inspect.isasyncgenfunction(tool.fn)

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments for the function, with defaults. Raises pydantic's ValidationError, or the Problem of a validator."""
        if self._strict:
            # In strict mode pydantic accepts the JSON form of a date or an enum only from JSON, as in FastMCP.
            return dict(self._validator.validate_json(to_json(arguments), strict=True))
        validated: dict[str, Any] = self._validator.validate_python(arguments)
        return validated

    def canonical(self, sent: dict[str, Any]) -> dict[str, Any]:
        """The arguments in canonical form, as JSON values: equal for calls that the function cannot tell apart. Raises as `validate`."""
        needed = {name: value for name, value in sent.items() if name in self._required}
        validated = self.validate(sent)
        defaults = validated if len(needed) == len(sent) else self.validate(needed)
        return canonical_arguments(sent, validated, defaults, required=self._required)

    async def run(self, arguments: Mapping[str, Any], scope: Scope) -> Any:
        """The function's return value for validated arguments; a generator's items as a list.

        Raises any exception of the function, and Problem 504 `timeout` at the tool's timeout.
        """
        entered = self._context.enter(scope, shares=self._needs_resolution)
        try:
            if self._tool.timeout is None:
                return await self._injected(arguments, scope)
            return await self._in_time(arguments, scope, seconds=self._tool.timeout)
        finally:
            reset(entered)

    async def _in_time(self, arguments: Mapping[str, Any], scope: Scope, *, seconds: float) -> Any:
        late = timed_out(seconds)
        with anyio.move_on_after(seconds) as limit:
            value = await self._injected(arguments, scope)
            # A function that never awaits cannot be stopped: it may return after its time.
            if anyio.current_time() >= limit.deadline:
                raise late
            return value
        raise late

    def _injected(self, arguments: Mapping[str, Any], scope: Scope) -> Awaitable[Any]:
        """Not a coroutine itself: that saves one per call."""
        if self._needs_resolution:
            return self._resolved(arguments)
        values = {name: each.from_scope(scope) for name, each in self._request_dependencies.items()}
        if self._is_async:
            called: Awaitable[Any] = self._function(**arguments, **values)
            return called
        return self._called({**arguments, **values})

    async def _resolved(self, arguments: Mapping[str, Any]) -> Any:
        async with shared_scope(), resolve_dependencies(self._function, dict(arguments)) as resolved:
            return await self._called(resolved)

    async def _called(self, arguments: dict[str, Any]) -> Any:
        if self._is_async:
            return await self._function(**arguments)
        if self._in_thread:
            value = await anyio.to_thread.run_sync(functools.partial(_collected, self._function, arguments))
        else:
            value = _collected(self._function, arguments)
        if inspect.isawaitable(value):
            value = await value
        return [item async for item in value] if inspect.isasyncgen(value) else value


def argument_adapter(function: Callable[..., Any], *, without: Mapping[str, Any]) -> TypeAdapter[dict[str, Any]]:
    """A validator that returns the keyword arguments of `function`, except injected ones, instead of calling it."""
    visible = [each for name, each in inspect.signature(function).parameters.items() if name not in without]
    hints = get_type_hints(_innermost(function), include_extras=True)

    def captured(**arguments: Any) -> dict[str, Any]:
        return arguments

    captured.__signature__ = inspect.Signature(visible)  # type: ignore[attr-defined]  # pydantic and inspect read it
    captured.__annotations__ = {each.name: hints[each.name] for each in visible if each.name in hints}
    adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(cast(Any, captured))
    return adapter


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function within partials: it has the type hints."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _collected(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a plain function; a generator's body runs here too, where the function would have run."""
    value = function(**arguments)
    return list(value) if inspect.isgenerator(value) else value
