"""A call of a tool over HTTP: the endpoint of one tool, the gate that admits a call, and how the tool is run."""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import anyio
from fastmcp import FastMCP
from fastmcp.exceptions import DisabledError, NotFoundError, ToolError
from fastmcp.exceptions import ValidationError as FastMCPValidationError
from fastmcp.tools.base import ToolResult
from mcp import MCPError
from mcp_types import INTERNAL_ERROR
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from twins.catalog import Catalog
from twins.http.arguments import BodyLimits, UnreadableArgumentsError, read_arguments
from twins.http.json_reader import READERS
from twins.http.responses import FORMAT_KEY, Answer, ResultEncoder, formats_of, or_not_modified, problem_answer, send_answer
from twins.problems import NO_TYPE, Problem
from twins.tool.annotation import BODY_LIMIT
from twins.tool.arguments import ArgumentChecker
from twins.tool.context import ToolContext, why_slow
from twins.tool.errors import forbidden, problem_of
from twins.tool.hang_up import WATCH_AFTER, ClientDisconnectedError, Interruptible, WaitingCaller


class Call(WaitingCaller):
    """One call in progress. A gate may refuse it by raising a Problem, read its arguments, and have it answered."""

    __slots__ = ("_arguments", "_sent", "_twin", "operation", "receive", "runs_to_end", "scope", "takes_whole")

    def __init__(self, twin: "Twin", scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.operation = twin.operation
        """The tool that is called, with its route."""
        self.receive = receive
        self.runs_to_end = False
        """True for a call that goes on when its caller hangs up, such as one that is paid for."""
        self.takes_whole = twin.has_no_gate
        """Whether a body may have as many bytes as the tool declares for one that is an argument as it stands. For a gate to say."""
        self._twin = twin
        self._sent: dict[str, Any] | None = None
        self._arguments: dict[str, Any] | None = None

    @property
    def request(self) -> Request:
        """The request without its body, which is read as arguments."""
        return Request(self.scope)

    async def sent(self) -> dict[str, Any] | None:
        """The arguments as they were sent, not validated; None when they cannot be read. For a gate that quotes them in a refusal."""
        try:
            return await self._read()
        except Problem:
            return None

    async def arguments(self) -> dict[str, Any]:
        """The tool's arguments, read and validated once. Raises a Problem for arguments that are not valid."""
        if self._arguments is None:
            if self._sent is None:  # as in _read, with one coroutine fewer for every call
                try:
                    self._sent = await self._twin.read(self.scope, self.receive, whole=self.takes_whole)
                except UnreadableArgumentsError as error:
                    raise self._unreadable(error) from None
            self._arguments = self._twin.checker.check(self._sent, self.scope["method"])
        return self._arguments

    async def canonical(self) -> dict[str, Any]:
        """The arguments in canonical form: equal calls are equal, however they are written. Raises a Problem for invalid arguments."""
        return self._twin.checker.canonical(await self._read(), self.scope["method"])

    async def answer(self) -> Answer:
        """Run the tool. Raises a Problem, or any exception of the tool: the call must not be charged then."""
        twin = self._twin
        arguments = await self.arguments()
        if twin.direct is not None and (twin.catalog is None or await twin.catalog.holds()):
            work = twin.direct.run(arguments, self.scope)
            if twin.calls.waits is not False and not self.runs_to_end:
                return twin.encoder.encode(await twin.calls.run(work, self))
            begun = monotonic()  # most tools never wait, and go without a watch until one of their calls takes long
            value = await work
            twin.calls.waits = twin.calls.waits or monotonic() - begun > WATCH_AFTER
            return twin.encoder.encode(value)
        on_server = twin.on_server.call(self._sent or {}, self.scope, self.scope["method"])
        return twin.on_server.encoder.encode_server_result(await (on_server if self.runs_to_end else twin.calls.run(on_server, self)))

    async def _read(self) -> dict[str, Any]:
        if self._sent is None:
            try:
                self._sent = await self._twin.read(self.scope, self.receive, whole=self.takes_whole)
            except UnreadableArgumentsError as error:
                raise self._unreadable(error) from None
        return self._sent

    def _unreadable(self, error: UnreadableArgumentsError) -> Problem:
        return self._twin.checker.invalid(error.arguments, self.scope["method"], found=error.errors)


class ToolOnServer:
    """One tool, called through its server for an HTTP request; and the encoder of its results as answers."""

    def __init__(self, server: FastMCP[Any], checker: ArgumentChecker) -> None:
        self.operation = checker.operation
        self.encoder = ResultEncoder(checker.operation, checker.results)
        self._server = server
        self._checker = checker
        context = ToolContext(server)
        self._around = context.bound if why_slow() else context.entered

    async def call(self, sent: dict[str, Any], scope: Scope, method: str | None = None) -> ToolResult | BaseModel:
        """The result for these arguments. Raises a Problem, or any exception of the tool; `method` says where the arguments were sent."""
        tool = self.operation.tool
        try:
            async with self._checker.thread():
                with self._around(scope):
                    result = await self._server.call_tool(tool.name, sent)
            self._checker.check_result(result)
            return result
        except ToolError as error:
            if (unsendable := self._checker.unsendable(error)) is not None:
                raise unsendable from error
            raise  # its cause says whose fault it was
        except FastMCPValidationError as error:
            if isinstance(error.__cause__, ValidationError):
                raise self._checker.rejected(error.__cause__, sent, method) from None
            raise
        except MCPError as error:  # of middleware or an extension: FastMCP wraps a tool's own
            if error.error.code == INTERNAL_ERROR:
                raise
            raise Problem(400, "tool_error", error.error.message) from error
        except (DisabledError, NotFoundError):
            if tool.auth is not None:
                raise forbidden() from None
            raise Problem(404, "not_found", "this tool is no longer available") from None


Gate = Callable[[Call], Awaitable[Answer]]
"""Runs before every call of a server: it raises a Problem to refuse, returns an answer of its own, or returns `await call.answer()`."""


class Twin:
    """One tool as an ASGI app: through the gate to the tool. Every exception becomes a problem.

    `scope["twins.http.call"]` is the call while it runs. Middleware of the MCP server, which runs when the tool is called
    through its server, finds it there and knows that the gate was passed.
    """

    def __init__(
        self,
        server: FastMCP[Any],
        checker: ArgumentChecker,
        *,
        gate: Gate | None = None,
        catalog: Catalog | None = None,
        body_limit: int = BODY_LIMIT,
        is_link: bool = False,
        problem_types: str = NO_TYPE,
    ) -> None:
        """With a `catalog`, the server is asked once that holds no longer. `body_limit` is in bytes.

        With `is_link`, GET ignores query parameters that other services add to shared links.
        """
        self.server = server
        self.operation = checker.operation
        self.checker = checker
        self.direct = checker.direct
        self.catalog = catalog
        self.on_server = ToolOnServer(server, checker)
        self.encoder = self.on_server.encoder
        self.calls = Interruptible(unstoppable=self.direct.unstoppable if self.direct else 0)
        self._formats = formats_of(checker.operation.tool)
        self._gate = gate
        self.has_no_gate = gate is None
        self._limits = BodyLimits(body_limit)
        self._whole_limits = BodyLimits(body_limit, self.operation.route.whole_limit)
        self._readers = anyio.CapacityLimiter(READERS)
        self._is_link = is_link
        self._problem_types = problem_types

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = scope["twins.http.call"] = Call(self, scope, receive)
        if self._formats is not None:
            scope[FORMAT_KEY] = self._formats.wanted(scope)
        try:
            answer = await (call.answer() if self._gate is None else self._gate(call))
            if self._formats is not None:
                answer = self._formats.negotiated(answer, scope)
            if self.operation.cache is not None:
                answer = or_not_modified(answer, scope)
        except ClientDisconnectedError:
            return
        except Exception as error:  # the border: any exception of a tool or a gate becomes an answer, and unforeseen ones are logged
            answer = problem_answer(problem_of(error, call.operation, scope), types=self._problem_types, request_id=scope.get("request_id"))
        finally:
            del scope["twins.http.call"]  # the two would refer to each other until the garbage collector runs
        await send_answer(send, answer, with_body=scope["method"] != "HEAD")

    def read(self, scope: Scope, receive: Receive, *, whole: bool) -> Awaitable[dict[str, Any]]:
        """The arguments as they were sent, not validated; raises as `read_arguments`. Not a coroutine itself: that saves one per call."""
        is_link = self._is_link and scope["method"] in ("GET", "HEAD")
        limits = self._whole_limits if whole else self._limits
        return read_arguments(self.operation, scope, receive, limits=limits, readers=self._readers, is_link=is_link)
