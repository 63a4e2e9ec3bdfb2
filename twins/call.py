"""One call of a tool over HTTP: what a gate sees of it, and the way by which the tool is reached."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fastmcp import FastMCP
from fastmcp.exceptions import AuthorizationError, DisabledError, NotFoundError, ToolError
from fastmcp.exceptions import ValidationError as FastMCPValidationError
from fastmcp.tools import Tool
from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import Receive, Scope

from twins.argument_checks import ArgumentChecker
from twins.arguments import UnreadableArgumentsError, read_arguments
from twins.fastmcp_internals import DirectCallGuard, ToolContext, is_crash, is_proxied, reset
from twins.operation import Operation
from twins.problems import Problem
from twins.responses import Answer, or_not_modified
from twins.results import Results
from twins.validation_errors import invalid_arguments, timeout_problem, upstream_failed

logger = logging.getLogger(__name__)


class Way:
    """How one operation's tool is reached: directly where nothing is skipped by it, through its server otherwise."""

    def __init__(self, server: FastMCP[Any], operation: Operation, *, registered: Tool, body_limit: int, is_link: bool = False) -> None:
        self.operation = operation
        self.body_limit = body_limit
        self._is_link = is_link
        self._server = server
        self._surroundings = ToolContext(server)
        self._results = Results(operation)
        self._standing = DirectCallGuard(server, registered)
        self._input = ArgumentChecker(server, operation)
        self._direct = self._input.direct

    @property
    def is_direct(self) -> bool:
        """Whether calls go straight to the tool's function, at this moment."""
        return self._direct is not None and self._standing.holds()

    def reading(self, scope: Scope, receive: Receive) -> Awaitable[dict[str, Any]]:
        """The arguments as they were sent, not validated; raises as `read_arguments`. Not a coroutine itself: that saves one per call."""
        is_link = self._is_link and scope["method"] in ("GET", "HEAD")
        return read_arguments(self.operation, scope, receive, body_limit=self.body_limit, is_link=is_link)

    def refused(self, misfit: UnreadableArgumentsError, *, method: str) -> Problem:
        """The Problem of arguments that cannot be read: it names everything that is wrong with them."""
        return self._input.refusal(misfit.arguments, method, found=misfit.errors)

    def validated(self, sent: dict[str, Any], *, method: str) -> dict[str, Any]:
        """The arguments as the tool takes them; as they were sent, where the server is to validate them."""
        return self._input.check(sent, method)

    def canonical(self, sent: dict[str, Any], *, method: str) -> dict[str, Any]:
        """The call in one form; where the server is to validate it, as it was sent without nulls."""
        return self._input.canonical(sent, method)

    async def answer(self, sent: dict[str, Any], arguments: dict[str, Any], scope: Scope) -> Answer:
        if self._direct is not None and self._standing.holds():
            answer = self._results.answer(await self._direct.run(arguments, scope))
        else:
            answer = await self._through_server(sent, scope)
        return answer if self.operation.cache is None else or_not_modified(answer, scope)

    async def _through_server(self, sent: dict[str, Any], scope: Scope) -> Answer:
        tool = self.operation.tool
        entered = self._surroundings.enter(scope)
        try:
            result = await self._server.call_tool(tool.name, sent)
        except FastMCPValidationError as error:
            if isinstance(error.__cause__, ValidationError):
                raise invalid_arguments(error.__cause__, self.operation, scope["method"], sent) from None
            raise
        except ToolError as error:
            if is_crash(error):
                raise _fault(error.__cause__, tool) from error.__cause__
            raise
        finally:
            reset(entered)
        return self._results.answer_of_server(result)


class ToolFailedError(Exception):
    """A tool called through its server failed in a way that it did not foresee."""


def _fault(cause: BaseException | None, tool: Tool) -> Exception:
    return timeout_problem(cause, tool) or ToolFailedError(tool.name)


class Call:
    """One call in flight. A gate may refuse it by raising a Problem, look at its arguments, and let it be answered."""

    __slots__ = ("_arguments", "_receive", "_sent", "_way", "scope")

    def __init__(self, way: Way, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self._way = way
        self._receive = receive
        self._sent: dict[str, Any] | None = None
        self._arguments: dict[str, Any] | None = None

    @property
    def operation(self) -> Operation:
        return self._way.operation

    @property
    def request(self) -> Request:
        """The request, without its body: that is read as arguments."""
        return Request(self.scope)

    async def sent(self) -> dict[str, Any] | None:
        """The arguments as they were sent, not validated, for a gate that names them as it refuses; None where they cannot be read."""
        try:
            return await self._read()
        except Problem:
            return None

    async def arguments(self) -> dict[str, Any]:
        """The tool's arguments, read and validated once. Raises the Problem of arguments that do not fit."""
        if self._arguments is None:
            way = self._way
            if self._sent is None:  # as in _read, and one coroutine less for every call
                try:
                    self._sent = await way.reading(self.scope, self._receive)
                except UnreadableArgumentsError as misfit:
                    raise way.refused(misfit, method=self.scope["method"]) from None
            self._arguments = way.validated(self._sent, method=self.scope["method"])
        return self._arguments

    async def _read(self) -> dict[str, Any]:
        if self._sent is None:
            try:
                self._sent = await self._way.reading(self.scope, self._receive)
            except UnreadableArgumentsError as misfit:
                raise self._way.refused(misfit, method=self.scope["method"]) from None
        return self._sent

    async def canonical(self) -> dict[str, Any]:
        """The arguments in one form, however they were spelled. Raises the Problem of arguments that do not fit."""
        return self._way.canonical(await self._read(), method=self.scope["method"])

    async def answer(self) -> Answer:
        """Run the tool. Raises a Problem, or whatever else the tool raises: nothing then is to be charged."""
        arguments = await self.arguments()
        return await self._way.answer(self._sent or {}, arguments, self.scope)


Gate = Callable[[Call], Awaitable[Answer]]
"""Stands before every call of a server: it refuses by raising a Problem, answers itself, or awaits `call.answer()`."""


def problem_of(error: Exception, call: Call) -> Problem:
    """What the caller is told of an error. A fault is logged here, and its text never leaves the server."""
    match error:
        case Problem():
            return error
        case NotFoundError() | DisabledError():
            return Problem(404, "not_found", "this tool is no longer available")
        case AuthorizationError():
            return Problem(403, "forbidden", "this caller may not use the tool")
        case FastMCPValidationError() if error.__cause__ is None:
            return Problem(422, "invalid_request", str(error))
        case ToolError() if not is_crash(error):
            return Problem(400, "tool_error", str(error))
    logger.error(
        "a tool failed",
        exc_info=error,
        extra={"tool": call.operation.name, "path": call.operation.path, "request_id": call.scope.get("request_id")},
    )
    if is_proxied(call.operation.tool):
        return upstream_failed()
    return Problem(500, "internal_error", "the call failed on the server; the cause is in its log")
