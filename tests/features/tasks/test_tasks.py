"""Tools that run as background tasks: over MCP as on the bare server, over HTTP with 202 and an address to poll, and within limits."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp_tasks import TasksExtension
from fastmcp_tasks.client import call_tool_task
from fastmcp_tasks.dependencies import CurrentDocket
from features.tasks.lab import make_lab
from listening import listening
from mcp_oracle import MODERN, P, request_of
from openapi_schema_validator import OAS30Validator
from openapi_spec_validator import validate
from patience import patience

from campus import access, free
from campus.errors import LoadError
from campus.testing import ORIGIN, Clock, TestCampus, open_campus
from tests import patient

pytestmark = pytest.mark.anyio
TASKS = {f"{P}clientCapabilities": {"extensions": {f"{P}tasks": {}}}}
FREE = {"*": {"free": True}}


async def seen_by_a_client(url: str, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with Client(StreamableHttpTransport(url)) as client:
        for name, sample in (("measure", 1), ("weigh", 2), ("spill", 3), ("look", 4)):
            result = await client.call_tool(name, {"sample": sample}, raise_on_error=False)
            found[name] = result.content, result.is_error or result.structured_content, result.is_error
        for name, sample in (("spill", 0), ("measure", "x")):
            found[f"{name} {sample}"] = (await client.call_tool(name, {"sample": sample}, raise_on_error=False)).is_error
        (folder / "hold").touch()
        task = await call_tool_task(client, "weigh", {"sample": 5})
        found["created"] = task.create_result.status, task.create_result.poll_interval_ms
        found["running"] = (await task.status()).status
        await task.cancel()
        found["cancelled"] = (await task.status()).status
        (folder / "hold").unlink()
    found["unknown"] = await asked(url, "tasks/get", {"taskId": "x"}, meta=TASKS)
    found["undeclared"] = await asked(url, "tools/call", {"name": "measure", "arguments": {"sample": 1}})
    return found


async def asked(url: str, method: str, params: Mapping[str, Any], *, meta: Any = None, key: str | None = None) -> Any:
    request = request_of(method, MODERN, method, dict(params), meta=meta or {}, headers={"authorization": f"Bearer {key}" if key else None})
    async with patient.AsyncClient() as client:
        text = (await client.post(url, content=request.body, headers=dict(request.headers))).text
    message = json.loads(text.rpartition("data: ")[2])
    return message.get("result") or message["error"]


async def ended(campus: TestCampus, answer: httpx.Response, *, key: str | None = None) -> httpx.Response:
    assert answer.status_code == 202, answer.text
    with anyio.fail_after(patience(20)):
        while answer.status_code == 202:
            await anyio.sleep(0.02)
            answer = await campus.http.get(answer.headers["Location"], headers=bearer(key))
    return answer


def bearer(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(patience(20)):
        while not condition():  # noqa: ASYNC110  # the tool tells by a file
            await anyio.sleep(0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runs").touch()
    return tmp_path


async def test_a_client_of_the_protocol_sees_the_same_as_on_the_bare_server(folder: Path) -> None:
    bare = make_lab(folder).http_app(path="/lab/mcp", stateless_http=True)
    async with listening(bare) as url:
        expected = await seen_by_a_client(f"{url}/lab/mcp", folder)
    async with open_campus(lab=make_lab(folder), tools=FREE) as campus, listening(campus.app, lifespan="off") as url:
        assert await seen_by_a_client(f"{url}/lab/mcp", folder) == expected


async def test_over_http_a_task_is_accepted_polled_and_cancelled(folder: Path) -> None:
    async with open_campus(lab=make_lab(folder), tools=FREE) as campus:
        (folder / "hold").touch()
        accepted = await campus.http.post("/v1/lab/measure", json={"sample": 1})
        task = accepted.json()
        assert accepted.status_code == 202
        assert (task["status"], task["poll_interval_ms"], accepted.headers["Retry-After"]) == ("working", 50, "1")
        assert task["url"].endswith(accepted.headers["Location"])
        assert accepted.headers["Location"] == f"/v1/lab/tasks/{task['id']}"
        assert (await campus.http.get(accepted.headers["Location"])).json() == task
        (folder / "hold").unlink()
        answer = await ended(campus, accepted)
        assert (answer.status_code, answer.json(), answer.headers["cache-control"]) == (200, {"sample": 1}, "private, no-store")
        assert (await campus.http.delete(accepted.headers["Location"])).json()["status"] == "completed", "it is too late"

        later = {"Prefer": "wait=1, respond-async"}
        assert (await campus.http.post("/v1/lab/weigh", json={"sample": 2})).json() == {"result": "2 g"}
        assert (await ended(campus, await campus.http.post("/v1/lab/weigh", json={"sample": 2}, headers=later))).json() == {"result": "2 g"}
        for sample, problem in ((3, (400, "tool_error")), (0, (500, "internal_error"))):
            failed = await ended(campus, await campus.http.post("/v1/lab/spill", json={"sample": sample}, headers=later))
            assert (failed.status_code, failed.json()["code"]) == problem
            assert "secret" not in failed.text
        assert (await campus.http.post("/v1/lab/measure", json={"sample": "x"})).status_code == 422
        assert (await campus.http.post("/v1/lab/look", json={"sample": 4}, headers=later)).status_code == 200

        (folder / "hold").touch()
        accepted = await campus.http.post("/v1/lab/measure", json={"sample": 5})
        cancelled = await campus.http.delete(accepted.headers["Location"])
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
        assert (await ended(campus, accepted)).json()["code"] == "task_cancelled"


async def test_a_task_is_seen_by_its_key_after_a_rotation_in_both_frames_and_by_nobody_else(folder: Path) -> None:
    async with open_campus(lab=make_lab(folder), tools={"*": {"price": "1"}}) as campus, listening(campus.app, lifespan="off") as url:
        key, token = await campus.service.keys.issue("lab")
        assert (await campus.http.post("/v1/lab/sign")).status_code == 402
        accepted = await campus.http.post("/v1/lab/sign", headers=bearer(token))
        _, rotated = await campus.service.keys.rotate(key.id)
        assert (await ended(campus, accepted, key=rotated)).json() == {"result": key.lineage}
        by_mcp = await asked(f"{url}/lab/mcp", "tools/call", {"name": "sign", "arguments": {}}, meta=TASKS, key=rotated)
        assert (await ended(campus, accepted, key=rotated)).status_code == 200
        for task_id in (accepted.json()["id"], by_mcp["taskId"]):
            for thief in (None, await campus.key("lab"), await campus.key("all")):
                for method in ("GET", "DELETE"):
                    assert (await campus.http.request(method, f"/v1/lab/tasks/{task_id}", headers=bearer(thief))).status_code == 404
                for request in ("tasks/get", "tasks/cancel", "tasks/update"):
                    found = await asked(f"{url}/lab/mcp", request, {"taskId": task_id, "inputResponses": {}}, meta=TASKS, key=thief)
                    assert found["code"] == -32602
            found = await asked(f"{url}/lab/mcp", "tasks/get", {"taskId": task_id}, meta=TASKS, key=rotated)
            assert found["result"]["structuredContent"] == {"result": key.lineage}


async def test_networks_of_one_provider_do_not_take_all_places_for_free_tasks(folder: Path) -> None:
    async with open_campus(lab=make_lab(folder), tools=FREE) as campus:
        (folder / "hold").touch()
        statuses = []
        for number in range(16):
            transport = httpx.ASGITransport(campus.app, client=(f"2001:db8:{number % 4}:{number}::1", 1))
            async with patient.AsyncClient(transport=transport, base_url=ORIGIN) as client:
                statuses += [(await client.post("/v1/lab/measure", json={"sample": each})).status_code for each in range(3)]
        assert (statuses.count(202), statuses.count(429)) == (24, 24)
        assert (await campus.http.post("/v1/lab/measure", json={"sample": 1})).status_code == 202
        (folder / "hold").unlink()


async def test_a_caller_has_few_tasks_at_once_and_few_results_and_others_are_not_kept_waiting(folder: Path) -> None:
    clock = Clock()
    async with open_campus(lab=make_lab(folder), tools={"*": {"key": "optional"}}, clock=clock) as campus:
        (folder / "hold").touch()
        accepted = [await campus.http.post("/v1/lab/measure", json={"sample": number}) for number in range(8)]
        refused = await campus.http.post("/v1/lab/measure", json={"sample": 9})
        assert (refused.status_code, refused.json()["code"], refused.headers["Retry-After"]) == (429, "too_many_tasks", "5")
        by_key = await campus.http.post("/v1/lab/measure", json={"sample": 10}, headers=bearer(await campus.key("lab")))
        assert by_key.status_code == 202
        (folder / "hold").unlink()
        for each in accepted:
            assert (await ended(campus, each)).status_code == 200
        for number in range(92):
            await ended(campus, await campus.http.post("/v1/lab/measure", json={"sample": number}))
        assert (await campus.http.post("/v1/lab/measure", json={"sample": 9})).json()["code"] == "too_many_tasks"
        clock.move(timedelta(minutes=15))
        assert (await campus.http.get(accepted[0].headers["Location"])).status_code == 404, "it is not kept any longer"
        assert (await campus.http.post("/v1/lab/measure", json={"sample": 9})).status_code == 202


@pytest.mark.both_databases
async def test_any_process_tells_of_a_task_and_cancels_it_and_a_stopped_one_leaves_it_interrupted(folder: Path, storage_url: str) -> None:
    clock = Clock()
    async with open_campus(lab=make_lab(folder), tools=FREE, storage=storage_url, clock=clock) as other:
        async with open_campus(lab=make_lab(folder), tools=FREE, storage=storage_url, clock=clock) as one:
            assert (await ended(other, await one.http.post("/v1/lab/measure", json={"sample": 1}))).json() == {"sample": 1}
            (folder / "hold").touch()
            cancelled = await one.http.post("/v1/lab/measure", json={"sample": 2})
            running = await one.http.post("/v1/lab/measure", json={"sample": 3})
            await until((folder / "held").exists)
            assert (await other.http.delete(cancelled.headers["Location"])).json()["status"] == "cancelled"
            assert (await other.http.get(running.headers["Location"])).status_code == 202
        assert (await ended(other, cancelled)).json()["code"] == "task_cancelled"
        interrupted = await ended(other, running)
        assert (interrupted.status_code, interrupted.json()["code"]) == (500, "task_interrupted")


async def test_a_revoked_keys_task_ends_soon_in_whichever_process_and_says_so_and_a_rotated_keys_goes_on(folder: Path) -> None:
    shared = {"tools": {"*": {"price": "1"}}, "storage": f"sqlite:{folder / 'data'}", "clock": Clock()}
    async with open_campus(lab=make_lab(folder), **shared) as one, open_campus(lab=make_lab(folder), **shared) as other:
        (folder / "hold").touch()
        (key, token), (old, rotated) = [await other.service.keys.issue("lab") for _ in range(2)]
        accepted, going_on = [await one.http.post("/v1/lab/measure", json={"sample": 1}, headers=bearer(each)) for each in (token, rotated)]
        _, held = await other.service.keys.rotate(key.id)
        _, rotated = await other.service.keys.rotate(old.id)
        await other.service.keys.revoke(key.id)
        for campus in (one, other):
            for each in (token, held):
                answer = await ended(campus, accepted, key=each)
                assert (answer.status_code, answer.json()["code"]) == (403, "task_key_ended")
            async with listening(campus.app, lifespan="off") as url:
                told = await asked(f"{url}/lab/mcp", "tasks/get", {"taskId": accepted.json()["id"]}, meta=TASKS, key=held)
            assert (told["status"], told["error"]["message"]) == ("failed", answer.json()["detail"])
        (folder / "hold").unlink()
        assert (await ended(one, going_on, key=rotated)).json() == {"sample": 1}
        assert (await ended(other, accepted, key=held)).json()["code"] == "task_key_ended", "its end does not change that"


async def open_docket(product: str = "lab", docket: Any = CurrentDocket()) -> str:  # noqa: B008  # as authors write it
    """Start more."""
    return f"{product} {docket}"


async def sell(product: str) -> str:
    """Sell a key."""
    return product


@pytest.mark.parametrize(
    ("tool", "meta", "has_extension", "sentence"),
    [
        (open_docket, free(), True, "uses the queue of fastmcp-tasks"),
        (sell, free(), False, r"pip install 'mcp-campus\[tasks\]'"),
        (sell, access(key="never", sells="product"), True, "sells keys, which are stored encrypted"),
    ],
)
async def test_what_a_task_cannot_have_here_is_refused_at_the_start(
    tool: Callable[..., Any], meta: Any, has_extension: bool, sentence: str
) -> None:
    mcp: FastMCP[Any] = FastMCP("Lab")
    if has_extension:
        mcp.add_extension(TasksExtension())
    mcp.tool(tool, task=True, meta=meta)
    with pytest.raises(LoadError, match=sentence):
        async with open_campus(lab=mcp):
            pass


async def test_the_documents_and_the_page_of_a_tool_tell_of_its_tasks(folder: Path) -> None:
    async with open_campus(lab=make_lab(folder), tools=FREE) as campus:
        for path, prefix in (("/lab/openapi.json", ""), ("/v1/openapi.json", "lab_")):
            document = (await campus.http.get(path)).json()
            validate(document)
            responses = {tool: document["paths"][f"/v1/lab/{tool}"]["post"]["responses"] for tool in ("measure", "weigh", "look")}
            assert "respond-async" in responses["weigh"]["202"]["description"]
            assert ("202" in responses["measure"], "202" in responses["look"]) == (True, False)
            poll = document["paths"]["/v1/lab/tasks/{task_id}"]
            assert [poll[method]["operationId"] for method in ("get", "delete")] == [
                f"{prefix}poll_background_task",
                f"{prefix}cancel_background_task",
            ]
        task = (await campus.http.post("/v1/lab/measure", json={"sample": 1})).json()
        OAS30Validator(document["components"]["schemas"]["Task"]).validate(task)
        pages = {tool: (await campus.http.get(f"/tools/lab/{tool}", headers={"Accept": "text/html"})).text for tool in responses}
        assert {tool: "/v1/lab/tasks/{task_id}" in page for tool, page in pages.items()} == {"measure": True, "weigh": True, "look": False}
