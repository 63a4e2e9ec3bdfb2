"""Calls a tool's function directly, without its server: arguments validated and made canonical, dependencies, context variables.

Arguments are validated against the function's visible signature before anything runs, so that a caller's mistake
(422) is never confused with a fault of the function (500). The canonical form of arguments is the same for equal calls,
however they are written: validated, without defaults.
"""

import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from types import TracebackType
from typing import Any, ClassVar, TypeVar, cast, get_type_hints

import anyio
import anyio.to_thread
from fastmcp import FastMCP
from fastmcp.dependencies import Dependency
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_http_request, resolve_dependencies
from fastmcp.tools import FunctionTool
from pydantic import BaseModel, SecretBytes, SecretStr, TypeAdapter
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python
from starlette.types import Scope
from uncalled_for import get_dependency_parameters

from twins.tool.context import ToolContext, reset, shared_scope
from twins.tool.errors import ToolEndedError, ToolTimeoutProblem, ends_more_than_its_call

PLAIN = frozenset((str, int, bool, type(None)))  # The types of most values of a call, which are JSON as they are.
THREADS = 40
"""How many functions that are not async run at once: those of one server, if it has a limiter, else all, as anyio has it."""
T_co = TypeVar("T_co", covariant=True)


class RequestDependency(Dependency[T_co]):
    """The default of a tool's parameter. Each call replaces it by what `from_scope(scope)` returns, which a gate has put under `scope_key`.

    FastMCP resolves it like any other dependency. A twin calls `from_scope` itself, which is some twenty times faster.
    A caller can never set such a parameter.
    """

    scope_key: ClassVar[str] = ""

    def from_scope(self, scope: Scope) -> T_co:
        """The value for the HTTP request with this ASGI scope. A class that makes its value of the request overrides this; it may raise
        a Problem."""
        value: T_co | None = scope.get(self.scope_key)
        return self.without_request() if value is None else value

    def without_request(self) -> T_co:
        """The value without an HTTP request (stdio, an in-memory client): raises ToolError unless overridden."""
        raise ToolError(f"{type(self).__name__} is known only in an HTTP request; call this tool over HTTP")

    async def __aenter__(self) -> T_co:
        try:
            request = get_http_request()
        except RuntimeError:
            return self.without_request()
        return self.from_scope(request.scope)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """There is nothing to close."""


class DirectTool:
    """One function tool of one server, called without the server."""

    def __init__(self, server: FastMCP[Any], tool: FunctionTool, *, threads: anyio.CapacityLimiter | None = None) -> None:
        """`threads` limits those in which functions run that are not async."""
        self._context = ToolContext(server)
        self._threads = threads
        self.tool = tool
        self._function = tool.fn
        injected = get_dependency_parameters(tool.fn)
        self._request_dependencies = {name: value for name, value in injected.items() if isinstance(value, RequestDependency)}
        self._needs_resolution = len(self._request_dependencies) < len(injected)
        self._injected_names = frozenset(injected)
        self._required = frozenset(tool.parameters.get("required", ()))
        self._takes_none = not tool.parameters.get("properties")
        self._strict = server.strict_input_validation
        self._is_async = inspect.iscoroutinefunction(innermost(tool.fn))
        self._in_thread = runs_in_thread(tool)
        self.unstoppable = THREADS if self._in_thread and not self._needs_resolution else 0
        """How many calls at once are only waiting for a thread that cannot be stopped."""

    @functools.cached_property
    def _adapter(self) -> TypeAdapter[dict[str, Any]]:
        """Made for the first call: for all tools together it would be a tenth of a start."""
        return argument_adapter(self._function, without=self._injected_names)

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments for the function, with defaults. Raises pydantic's ValidationError, or the Problem of a validator."""
        if self._takes_none and not arguments:
            return {}
        if self._strict:
            # In strict mode pydantic accepts the JSON form of a date or an enum only from JSON, as in FastMCP.
            return dict(self._adapter.validator.validate_json(to_json(arguments), strict=True))
        validated: dict[str, Any] = self._adapter.validator.validate_python(arguments)
        return validated

    def canonical(self, sent: dict[str, Any], validated: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments in canonical form, as JSON values: equal for calls that the function cannot tell apart."""
        needed = {name: value for name, value in sent.items() if name in self._required}
        defaults = validated if len(needed) == len(sent) else self.validate(needed)
        return canonical_arguments(sent, validated, defaults, required=self._required)

    async def run(self, arguments: Mapping[str, Any], scope: Scope) -> Any:
        """The function's return value for validated arguments; a generator's items as a list.

        Raises any exception of the function, and Problem 504 `timeout` at the tool's timeout.
        """
        entered = self._context.enter(scope, shares=self._needs_resolution)
        try:
            if self.tool.timeout is None:
                return await self._injected(arguments, scope)
            return await self._in_time(arguments, scope, seconds=self.tool.timeout)
        except BaseException as error:
            if ends_more_than_its_call(error):
                raise ToolEndedError(error) from error
            raise
        finally:
            reset(entered)

    async def _in_time(self, arguments: Mapping[str, Any], scope: Scope, *, seconds: float) -> Any:
        late = ToolTimeoutProblem(seconds)
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
        if self._request_dependencies:
            arguments = {**arguments, **{name: each.from_scope(scope) for name, each in self._request_dependencies.items()}}
        if self._is_async:
            called: Awaitable[Any] = self._function(**arguments)
            return called
        return self._called(arguments)

    async def _resolved(self, arguments: Mapping[str, Any]) -> Any:
        async with shared_scope(), resolve_dependencies(self._function, dict(arguments)) as resolved:
            return await self._called(resolved)

    async def _called(self, arguments: Mapping[str, Any]) -> Any:
        if self._is_async:
            return await self._function(**arguments)
        if self._in_thread:
            value = await anyio.to_thread.run_sync(functools.partial(_collected, self._function, arguments), limiter=self._threads)
        else:
            value = _collected(self._function, arguments)
        if inspect.isawaitable(value):
            value = await value
        return [item async for item in value] if inspect.isasyncgen(value) else value


def argument_adapter(function: Callable[..., Any], *, without: Collection[str]) -> TypeAdapter[dict[str, Any]]:
    """A validator that returns the keyword arguments of `function`, except injected ones, instead of calling it."""
    visible = [each for name, each in inspect.signature(function).parameters.items() if name not in without]
    hints = get_type_hints(innermost(function), include_extras=True)

    def captured(**arguments: Any) -> dict[str, Any]:
        return arguments

    captured.__signature__ = inspect.Signature(visible)  # type: ignore[attr-defined]  # pydantic and inspect read it
    captured.__annotations__ = {each.name: hints[each.name] for each in visible if each.name in hints}
    adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(cast(Any, captured))
    return adapter


def runs_in_thread(tool: FunctionTool) -> bool:
    """True for a tool whose function is not async, unless its author wants it in the event loop."""
    function = innermost(tool.fn)
    return tool.run_in_thread and not (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function))


def innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _collected(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a plain function; a generator's body runs here too, where the function would have run."""
    value = function(**arguments)
    return list(value) if inspect.isgenerator(value) else value


def canonical_arguments(
    sent: Mapping[str, Any], validated: Mapping[str, Any], defaults: Mapping[str, Any], *, required: Collection[str]
) -> dict[str, Any]:
    """The arguments that were sent, as JSON values of their `validated` form, without those that equal their default.

    One that is sent under an alias has another name in `validated`: it stays as it was sent.
    """
    values = {name: _plain_or(sent[name], validated.get(name, sent[name])) for name in sent}
    return {name: value for name, value in values.items() if name in required or not _is_default(name, value, defaults)}


def without_nulls(sent: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments without nulls, for a tool whose server validates them: most defaults are null."""
    return {name: value for name, value in sent.items() if value is not None}


def plain(value: Any) -> Any:
    """A validated value as JSON values: the same for equal values, for sets in any order and for 5.0 as for 5."""
    if type(value) in PLAIN:
        return value
    match value:
        case BaseModel():
            return plain(dict(value))
        case SecretStr() | SecretBytes():
            return plain(value.get_secret_value())
        case Mapping():
            return {str(plain(key)): plain(member) for key, member in value.items()}
        case set() | frozenset():
            return sorted((plain(item) for item in value), key=_text)
        case list() | tuple():
            return [plain(item) for item in value]
        case float() if value.is_integer():
            return int(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return to_jsonable_python(value, bytes_mode="base64")


def _plain_or(sent: Any, validated: Any) -> Any:
    try:
        return plain(validated)
    except PydanticSerializationError:  # an object of the author's own class, which has no JSON form
        return sent


def _is_default(name: str, value: Any, defaults: Mapping[str, Any]) -> bool:
    if name not in defaults:
        return False
    default = _plain_or(None, defaults[name])
    return type(default) is type(value) and _text(default) == _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
