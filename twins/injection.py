"""Tool parameters that are injected synchronously from the HTTP request. Authors subclass RequestDependency."""

from abc import abstractmethod
from types import TracebackType
from typing import TypeVar

from fastmcp.dependencies import Dependency
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_http_request
from starlette.types import Scope

T_co = TypeVar("T_co", covariant=True)


class RequestDependency(Dependency[T_co]):
    """The default of a tool's parameter; in each call `from_scope(scope)` replaces it.

    FastMCP resolves it like any other dependency. A twin calls `from_scope` itself, which is some twenty times faster.
    A caller can never set such a parameter.
    """

    @abstractmethod
    def from_scope(self, scope: Scope) -> T_co:
        """The value for the HTTP request with this ASGI scope. May raise a Problem."""

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
