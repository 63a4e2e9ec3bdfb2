"""The probes: whether the process answers (/healthz), and whether it can answer calls (/readyz)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from time import monotonic

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.http.response import send_json, send_problem
from twins import Problem

log = logging.getLogger(__name__)

Findings = Mapping[str, Sequence[str]]  # By name of the check: a sentence for each thing that is wrong; none when all is well.

FAILED_CHECKS = "checks"
CACHE_SECONDS = 1.0
CHECK_SECONDS = 8.0


class Health:
    """Two probes. /readyz runs `checks` at most once a second, so that callers cannot load the database with it.

    Only findings of the checks in `needed` (default: of any) make it 503: an old list, for example, is better than none, and
    otherwise a load balancer would remove every instance at once. Findings may name addresses and files, so only the operator
    reads them; the public probe names the checks that failed.
    """

    def __init__(
        self,
        checks: Callable[[], Awaitable[Findings]],
        *,
        needed: Collection[str] | None = None,
        check_seconds: float = CHECK_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._checks = checks
        self._needed = needed
        self._check_seconds = check_seconds
        self._clock = clock
        self._checking: asyncio.Task[None] | None = None
        self._due_at = 0.0
        self._findings: Findings = {}
        self._expires_at = -1.0

    @property
    def probes(self) -> Mapping[str, ASGIApp]:
        return {"/healthz": self.alive, "/readyz": self.ready}

    @property
    def operator_probes(self) -> Mapping[str, ASGIApp]:
        return {"/healthz": self.alive, "/readyz": self.explain}

    async def alive(self, scope: Scope, receive: Receive, send: Send) -> None:
        if await _is_allowed(scope, send):
            await send_json(send, {"ok": True}, status=200)

    async def ready(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, send, lambda found: "failed" if found else "ok")

    async def explain(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, send, list)

    async def _answer(self, scope: Scope, send: Send, shown: Callable[[Sequence[str]], object]) -> None:
        if await _is_allowed(scope, send):
            findings = await self.findings()
            ready = self.is_ready(findings)
            checks = {name: shown(found) for name, found in findings.items()}
            await send_json(send, {"ok": ready, "checks": checks}, status=200 if ready else 503)

    def is_ready(self, findings: Findings) -> bool:
        return not any(found for name, found in findings.items() if self._is_needed(name))

    def _is_needed(self, name: str) -> bool:
        return self._needed is None or name in self._needed or name == FAILED_CHECKS

    async def findings(self) -> Findings:
        """What the checks find, at most a second old; or, after the time that they have, that they did not finish."""
        if self._clock() < self._expires_at:
            return self._findings
        loop = asyncio.get_running_loop()
        if self._checking is None:
            # a task that outlives its request: a commit is not cancelled, and a database may take half a minute for it
            self._checking = loop.create_task(self._check())
            self._due_at = loop.time() + self._check_seconds
        checking = self._checking
        await asyncio.wait([checking], timeout=max(0.0, self._due_at - loop.time()))
        return self._findings if checking.done() else self._unfinished

    async def finish(self) -> None:
        """Wait for checks that run, within the time that they have: what they ask is closed afterwards."""
        if self._checking is not None:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._checking], timeout=max(0.0, self._due_at - asyncio.get_running_loop().time()))

    async def _check(self) -> None:
        try:
            self._findings = await self._run()
            self._expires_at = self._clock() + CACHE_SECONDS
        finally:
            self._checking = None

    @property
    def _unfinished(self) -> Findings:
        return {FAILED_CHECKS: [f"the checks did not finish within {self._check_seconds:g} s; see what the database is doing"]}

    async def _run(self) -> Findings:
        try:
            with anyio.fail_after(self._check_seconds):
                return await self._checks()
        except TimeoutError:
            return self._unfinished
        except Exception:
            log.exception("readiness checks failed")
            return {FAILED_CHECKS: ["the checks failed; the cause is in the server's log"]}


async def _is_allowed(scope: Scope, send: Send) -> bool:
    if scope["method"] in ("GET", "HEAD"):
        return True
    problem = Problem(405, "method_not_allowed", "Use GET or HEAD here.", headers={"Allow": "GET, HEAD"})
    await send_problem(send, problem, scope.get("request_id"))
    return False
