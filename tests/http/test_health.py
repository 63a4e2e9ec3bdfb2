"""The two probes."""

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from campus.http.health import Findings, Health

pytestmark = pytest.mark.anyio


class Checks:
    """Checks that return what the test sets, and count their calls."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.asked = 0

    async def __call__(self) -> Findings:
        self.asked += 1
        await anyio.sleep(0.02)
        return self.findings


async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("a probe reached the app")


WELL = {"storage": [], "jobs": []}
ILL = {"storage": ["the disk is full; make room"], "jobs": []}
ALL_OK = {"storage": "ok", "jobs": "ok"}
FAILED = {"storage": "failed", "jobs": "ok"}


async def test_healthz_asks_nothing(serving) -> None:
    checks = Checks(ILL)
    async with serving(nowhere, probes=Health(checks).probes) as served:
        answer = await served.get("/healthz")
    assert (answer.status, answer.json(), checks.asked) == (200, {"ok": True}, 0)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-request-id"]


async def test_readyz_is_200_when_every_check_is_well(serving) -> None:
    async with serving(nowhere, probes=Health(Checks(WELL)).probes) as served:
        answer = await served.get("/readyz")
    assert (answer.status, answer.json()) == (200, {"ok": True, "checks": ALL_OK})


async def test_readyz_stays_200_when_what_is_wrong_keeps_no_call_from_its_answer(serving) -> None:
    for needed, status in (["jobs"], 200), (["storage"], 503):
        async with serving(nowhere, probes=Health(Checks(ILL), needed=needed).probes) as served:
            answer = await served.get("/readyz")
        assert (answer.status, answer.json()) == (status, {"ok": status == 200, "checks": FAILED})


async def test_readyz_is_503_and_names_the_check_that_failed_and_the_operator_reads_why(serving) -> None:
    health = Health(Checks(ILL))
    async with serving(nowhere, probes=health.probes) as served:
        public = await served.get("/readyz")
    async with serving(nowhere, probes=health.operator_probes) as served:
        operators = await served.get("/readyz")
    assert (public.status, public.json()) == (503, {"ok": False, "checks": FAILED})
    assert (operators.status, operators.json()) == (503, {"ok": False, "checks": ILL})


async def test_many_callers_ask_the_database_once(serving) -> None:
    checks = Checks(WELL)
    time = [100.0]
    async with serving(nowhere, probes=Health(checks, clock=lambda: time[0]).probes) as served:
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(served.get, "/readyz")
        assert checks.asked == 1
        time[0] += 0.9
        await served.get("/readyz")
        assert checks.asked == 1
        time[0] += 0.2
        checks.findings = ILL
        assert (await served.get("/readyz")).status == 503
        assert checks.asked == 2


async def test_checks_that_hang_are_a_finding(serving) -> None:
    async def hang() -> Findings:
        await anyio.sleep_forever()
        raise AssertionError

    async with serving(nowhere, probes=Health(hang, check_seconds=0.1).operator_probes) as served:
        answer = await served.get("/readyz")
    assert answer.status == 503
    assert "did not finish" in answer.json()["checks"]["checks"][0]


async def test_checks_that_cannot_be_cancelled_keep_no_caller_waiting(serving) -> None:
    over = anyio.Event()
    begun = []

    async def commit() -> Findings:
        begun.append(1)
        with anyio.CancelScope(shield=True):  # as a commit that waits for a standby that is missing
            await over.wait()
        return WELL

    async with serving(nowhere, probes=Health(commit, check_seconds=0.1).operator_probes) as served:
        for _ in range(2):
            answer = await served.get("/readyz")
            assert answer.status == 503
            assert "did not finish" in answer.json()["checks"]["checks"][0]
        assert begun == [1], "no second check is begun beside the first"
        over.set()
        await anyio.wait_all_tasks_blocked()
        assert (await served.get("/readyz")).json()["checks"] == WELL


async def test_checks_that_crash_are_a_finding_without_their_text(serving, caplog) -> None:
    async def crash() -> Findings:
        raise ValueError("password hunter2")

    async with serving(nowhere, probes=Health(crash).operator_probes) as served:
        answer = await served.get("/readyz")
    assert answer.status == 503
    assert b"hunter2" not in answer.body
    assert "readiness checks failed" in caplog.text


@pytest.mark.parametrize("request_", ["GET /healthz HTTP/1.0\r\n\r\n", "GET /healthz HTTP/1.1\r\nHost: 10.9.8.7:80\r\n\r\n"])
async def test_a_load_balancer_may_send_any_host_or_none(serving, request_: str) -> None:
    async with serving(nowhere, probes=Health(Checks(WELL)).probes) as served:
        assert (await served.ask(request_)).status == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_are_read_only(serving, path: str) -> None:
    async with serving(nowhere, probes=Health(Checks(WELL)).probes) as served:
        answer = await served.get(path, method="POST")
        assert (answer.status, answer.headers["allow"], answer.json()["code"]) == (405, "GET, HEAD", "method_not_allowed")
        async with served.connected() as connection:
            await connection.send(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            head = await connection.rest()
    assert head.startswith(b"HTTP/1.1 200 ")
    assert head.endswith(b"\r\n\r\n")
