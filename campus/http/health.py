"""Whether the service lives (/healthz) and is well (/readyz)."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from time import monotonic

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.http.response import send_json, send_problem
from twins import Problem

log = logging.getLogger(__name__)

Findings = Mapping[str, Sequence[str]]
"""By name of the check: a sentence for each thing that is wrong; none when it is well."""

FAILED_CHECKS = "checks"
KEEP_SECONDS = 1.0
PATIENCE_SECONDS = 8.0


class Health:
    """Two probes. /readyz asks `checks` at most once in `keep_seconds`, whoever calls: it cannot be used to load the database.

    Only what the checks called `needed` find (default: any) makes it 503: a list that is old, say, is better than none, and
    otherwise a load balancer would remove every instance at once. What the checks say is for the operator alone: it may name
    addresses and files, so the public probe names only the checks that failed.
    """

    def __init__(
        self,
        checks: Callable[[], Awaitable[Findings]],
        *,
        needed: Collection[str] | None = None,
        keep_seconds: float = KEEP_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._checks = checks
        self._needed = needed
        self._keep_seconds = keep_seconds
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._asking = anyio.Lock()
        self._findings: Findings = {}
        self._stale_at = -1.0

    @property
    def probes(self) -> Mapping[str, ASGIApp]:
        """The probes by path, for everyone."""
        return {"/healthz": self.alive, "/readyz": self.ready}

    @property
    def operator_probes(self) -> Mapping[str, ASGIApp]:
        """The probes by path, for the operator."""
        return {"/healthz": self.alive, "/readyz": self.explain}

    async def alive(self, scope: Scope, receive: Receive, send: Send) -> None:
        """200 as long as the process answers at all."""
        if await _is_read(scope, send):
            await send_json(send, {"ok": True}, status=200)

    async def ready(self, scope: Scope, receive: Receive, send: Send) -> None:
        """200 when calls can be answered, else 503; either way whether each check is ok."""
        if await _is_read(scope, send):
            findings = await self.findings()
            await self._send(send, findings, {name: "failed" if found else "ok" for name, found in findings.items()})

    async def explain(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The same with every sentence that the checks found."""
        if await _is_read(scope, send):
            findings = await self.findings()
            await self._send(send, findings, {name: list(found) for name, found in findings.items()})

    async def _send(self, send: Send, findings: Findings, checks: Mapping[str, object]) -> None:
        ready = not any(found for name, found in findings.items() if self._is_needed(name))
        await send_json(send, {"ok": ready, "checks": checks}, status=200 if ready else 503)

    def _is_needed(self, name: str) -> bool:
        return self._needed is None or name in self._needed or name == FAILED_CHECKS

    async def findings(self) -> Findings:
        """What the checks say, at most `keep_seconds` old."""
        async with self._asking:
            if self._clock() >= self._stale_at:
                self._findings = await self._ask()
                self._stale_at = self._clock() + self._keep_seconds
            return self._findings

    async def _ask(self) -> Findings:
        try:
            with anyio.fail_after(self._patience_seconds):
                return await self._checks()
        except TimeoutError:
            return {FAILED_CHECKS: [f"the checks did not finish within {self._patience_seconds:g} s; see what the database is doing"]}
        except Exception:
            log.exception("readiness checks failed")
            return {FAILED_CHECKS: ["the checks failed; the cause is in the server's log"]}


async def _is_read(scope: Scope, send: Send) -> bool:
    """Answer 405 to all but GET and HEAD."""
    if scope["method"] in ("GET", "HEAD"):
        return True
    problem = Problem(405, "method_not_allowed", "Use GET or HEAD here.", headers={"Allow": "GET, HEAD"})
    await send_problem(send, problem, scope.get("request_id"))
    return False
