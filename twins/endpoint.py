"""The ASGI ends: one operation's twin, and one path's choice among methods."""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from twins.arguments import ClientDisconnectedError
from twins.call import Call, Gate, Way, problem_of
from twins.problems import NO_TYPE, Problem
from twins.responses import Answer, problem_answer, raw_headers, send_answer


class Twin:
    """One operation as an ASGI app: through the gate to the tool, and every error as a problem.

    `scope["twins.call"]` is the call while it runs, for whatever stands on the other side of a gate: middleware of
    the server that is entered by the slow way sees there that the gate was passed already.
    """

    def __init__(self, way: Way, *, gate: Gate | None = None, problem_types: str = NO_TYPE) -> None:
        self.way = way
        self._gate = gate
        self._types = problem_types

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = scope["twins.call"] = Call(self.way, scope, receive)
        try:
            answer = await (call.answer() if self._gate is None else self._gate(call))
        except ClientDisconnectedError:
            return
        except Exception as error:  # the border: whatever a tool or a gate raises becomes an answer, and faults are logged
            answer = problem_answer(problem_of(error, call), types=self._types, request_id=scope.get("request_id"))
        finally:
            del scope["twins.call"]  # the two would hold each other until the garbage is collected
        await send_answer(send, answer, with_body=scope["method"] != "HEAD")


@dataclass(frozen=True)
class Methods:
    """One path as an ASGI app: the app of each method, OPTIONS, and 405 for the rest."""

    path: str
    apps: Mapping[str, ASGIApp]
    problem_types: str = NO_TYPE

    @property
    def allowed(self) -> str:
        """The Allow header."""
        return ", ".join([*self.apps, "OPTIONS"])

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Not a coroutine itself: that saves one per call."""
        app = self.apps.get(scope["method"])
        if app is not None:
            return app(scope, receive, send)
        return send_answer(send, self._without_app(scope), with_body=scope["method"] != "HEAD")

    def _without_app(self, scope: Scope) -> Answer:
        headers = {"Allow": self.allowed}
        if scope["method"] == "OPTIONS":
            return Answer(204, b"", raw_headers(headers))
        problem = Problem(405, "method_not_allowed", f"this path takes {self.allowed}", headers=headers)
        return problem_answer(problem, types=self.problem_types, request_id=scope.get("request_id"))
