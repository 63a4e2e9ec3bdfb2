"""The page of a tool: its form calls the tool, and the samples that it shows make the same call."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import redirect_stdout
from datetime import date, datetime
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import pytest
from fastmcp import FastMCP
from fastmcp.tools.base import Tool, ToolResult
from forms import HTML, sent, shown, token_in
from pages.harbour import make_harbour
from pages.hostile import ALL_AT_ONCE, HOSTILE, harm_in
from patience import patience
from pydantic import BaseModel, Field
from serving import Served, serving

from buildings.cve.building import building as cve
from buildings.gateway import building as gateway
from buildings.recorder import building as recorder
from campus.testing import TestCampus, open_campus
from tests import patient
from twins.tool.hang_up import WATCH_AFTER

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
async def campus() -> AsyncIterator[TestCampus]:
    others = {"quay": make_quay(), "stranger": make_stranger()}
    async with open_campus(harbour=make_harbour(), gateway=gateway, cve=cve, recorder=recorder, **others) as opened:
        yield opened


def make_stranger() -> FastMCP[Any]:
    """Its tool's types contain themselves, or are anything."""

    class Raw(Tool):
        async def run(self, arguments: dict[str, Any]) -> ToolResult:
            return ToolResult(structured_content=arguments)

    anything: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/Any"}}]}
    results = {"tree": {"$ref": "#/$defs/Any"}, "chain": {"$ref": "#/$defs/Chain"}, "rows": {"type": "array", "items": True}}
    defined = {"Any": anything, "Chain": {"anyOf": [{"$ref": "#/$defs/Chain"}, {"type": "null"}]}}
    mcp: FastMCP[Any] = FastMCP("Tools of a stranger")
    mcp.add_tool(
        Raw(
            name="shapes",
            parameters={"type": "object", "properties": {"word": {"type": ["string", "null"]}}},
            output_schema={"type": "object", "properties": {**results, "odd": {"anyOf": [True, {"type": "null"}]}}, "$defs": defined},
        )
    )
    return mcp


class Crate(BaseModel):
    weight: Annotated[int, Field(ge=5, description="Weight in kilograms.")]
    packed: date
    label: str | None = None


class Load(BaseModel):
    crates: Annotated[list[Crate], Field(min_length=2)]
    side: Literal["port", "starboard"]
    owner: Annotated[str, Field(min_length=8)]
    berth: Annotated[str, Field(pattern=r"^[0-9]{4}$")]
    flags: Annotated[set[str], Field(min_length=2)]
    draught: Annotated[float, Field(gt=0, lt=0.5)]
    length: Annotated[int, Field(ge=10, multiple_of=7)]


def make_quay() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Quay")

    @mcp.tool
    async def stow(load: Load, speed: Annotated[float, Field(gt=2)], at: datetime, deck: bool, crew: list[str]) -> str:
        """Stow a load."""
        return f"{load.model_dump()} {speed} {at} {deck} {crew}"

    return mcp


async def called(campus: TestCampus, tool: str, **arguments: str) -> tuple[int, str, str]:
    path = f"/tools/harbour/{tool}"
    fields = {f"argument.{name}": value for name, value in arguments.items()}
    page = await shown(campus.http, await sent(campus.http, path, **fields), HTML)
    answer = re.search(r'id="answer".*?<pre tabindex="0"><code>(.*?)</code></pre>', page.text, re.DOTALL)
    assert answer is not None, page.text
    assert harm_in(page.text) == []
    assert page.headers["cache-control"] == "private, no-store"
    return page.status_code, unescape(answer[1]), page.text


async def test_a_free_tool_is_called_from_its_page_with_arguments_of_every_type(campus: TestCampus) -> None:
    given = {"ship": ALL_AT_ONCE, "side": "starboard", "length": "12.5", "deep": "true", "tags": '["a", "b"]'}
    status, shown, page = await called(campus, "find", **given)
    assert (status, json.loads(shown)) == (200, {"ship": f"{ALL_AT_ONCE} starboard True ['a', 'b']", "length": 12.5})
    assert re.search(r"[0-9.]+ ms", page)


async def test_a_field_that_is_left_empty_is_left_out_and_a_wrong_one_is_explained(campus: TestCampus) -> None:
    status, shown, _ = await called(campus, "find", ship="Ada", side="", length=" ")
    assert (status, json.loads(shown)["ship"]) == (200, "Ada port False None")
    status, shown, page = await called(campus, "find", ship="Ada", length="long")
    assert (status, json.loads(shown)["code"]) == (422, "invalid_request")
    assert 'value="long"' in page


async def test_json_that_no_call_may_contain_is_refused_by_the_tool_and_breaks_no_page(campus: TestCampus) -> None:
    for text in ('"\\ud800"', '["\\ud800"]', "[" * 10_000, '{"a":' * 500, "1e999", '"\\u0000"', "9" * 400):
        status, shown, _ = await called(campus, "find", ship="Ada", length=text, tags=text)
        assert (status, json.loads(shown)["code"]) == (422, "invalid_request"), text[:9]
        for path, name in (("/tools/harbour/find", "tags"), ("/tools/recorder/heartbeat", "capsule")):
            assert (await campus.http.get(path, params={name: text}, headers=HTML)).status_code == 200, text[:9]


async def test_a_paid_tool_shows_its_refusal_and_runs_for_nobody_without_access(campus: TestCampus) -> None:
    for tool, arguments in (("secret_berth", {}), ("moor", {"ship": "Ada"})):
        status, shown, page = await called(campus, tool, **arguments)
        assert (status, json.loads(shown)["code"]) == (402, "access_required")
        assert "paid-for-and-delivered" not in page
        assert "harbour ($19, 30 days)" in page
        assert f'href="/keys?next=/tools/harbour/{tool}">Sign in with your key</a>' in page.partition('id="answer"')[2]


async def test_no_header_of_the_forms_request_reaches_the_tool(campus: TestCampus) -> None:
    token = await campus.key("gateway")
    page = await campus.http.get("/tools/harbour/moor", headers=HTML | {"Authorization": f"Bearer {token}"})
    assert token not in page.text


async def test_every_tool_has_a_page_that_shows_its_arguments_price_and_refusals_and_is_listed(campus: TestCampus) -> None:
    listed = (await campus.http.get("/docs/api", headers=HTML)).text
    for building in campus.service.plan.opened:
        for name, operation in building.operations.items():
            path = f"/tools/{building.name}/{name}"
            assert f'href="{path}"' in listed
            page = (await campus.http.get(path, headers=HTML)).text
            assert harm_in(page) == [], path
            for parameter in operation.parameters:
                assert f'name="argument.{parameter.name}"' in page, (path, parameter.name)
            assert len(page) < 100_000
            if not building.offers[name].access.is_free:
                assert "access_required" in page


async def test_types_that_contain_themselves_or_accept_anything_are_described_on_a_tools_page(campus: TestCampus) -> None:
    page = (await campus.http.get("/tools/stranger/shapes", headers=HTML)).text
    shown = dict(re.findall(r"<tr><td><code>(\S+)</code></td><td class=.muted.>([^<]*)</td>", page))
    expected = {"chain": "any JSON value or null", "rows[]": "list", "odd": "any JSON value or null"}
    assert shown == {"tree": "string or list of any JSON value", **expected}
    assert '<input id="field-word"' in page


async def test_the_sample_call_of_each_tool_is_accepted_as_it_stands_and_members_of_models_are_shown(campus: TestCampus) -> None:
    page = (await campus.http.get("/tools/quay/stow", headers=HTML)).text
    curl = next(unescape(text) for text in re.findall(r"<code>(curl .*?)</code>", page, re.DOTALL))
    body = json.loads(shlex.split(curl.replace("\\\n", " "))[-1])
    assert (await campus.http.post("/v1/quay/stow", json=body)).status_code == 200, body
    assert "<code>load.crates[].weight</code> integer: Weight in kilograms." in page


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A campus in a process, for the samples, which are programs."""
    folder = tmp_path_factory.mktemp("samples")
    text = '[buildings.gateway]\npath = "/"\n[buildings.harbour]\nserver = "pages.harbour_server:mcp"\n'
    with serving(folder, text, environ={"PYTHONPATH": str(Path(__file__).parents[1])}) as campus:
        yield campus


def test_the_samples_of_a_call_make_that_call_even_with_hostile_arguments(served: Served, tmp_path: Path) -> None:
    ship = "".join(HOSTILE[:4]) + " $(touch owned) \\ \n'\""
    with patient.Client(base_url=served.url, headers=HTML) as browser:
        path = "/tools/harbour/find"
        fields = {"form_token": token_in(browser.get(path).text), "argument.ship": ship, "argument.tags": '["a b", "c"]'}
        page = browser.post(path, data=fields, follow_redirects=True).text
    blocks = [unescape(text) for text in re.findall(r"<pre tabindex=.0.><code>(.*?)</code></pre>", page, re.DOTALL)]
    answer, curl, fastmcp, python, typescript = json.loads(blocks[0]), *blocks[1:5]
    assert answer["ship"].startswith(ship)
    bin_folder = Path(sys.executable).parent
    programs = {"curl": ["bash", "-c", curl], "fastmcp": ["bash", "-c", f"{fastmcp} --json"]}
    if node := shutil.which("node"):
        programs["typescript"] = [node, "--input-type=module", "-e", typescript]
    environ = {"PATH": f"{bin_folder}:/usr/bin:/bin:/usr/local/bin", "HOME": str(tmp_path), "NO_COLOR": "1", "FORCE_COLOR": "0"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path, "env": environ}
    running = {name: subprocess.Popen(command, **pipes) for name, command in programs.items()}
    with redirect_stdout(StringIO()) as printed:
        exec(python, {})  # here, where fastmcp is loaded
    outs = {"python": printed.getvalue()}
    for name, process in running.items():
        outs[name], errors = process.communicate(timeout=patience(60))
        assert process.returncode == 0, (name, errors)
    for name, out in outs.items():
        assert "port False ['a b', 'c']" in out.replace("\\'", "'"), (name, out)
    assert json.loads(outs["curl"]) == answer
    assert list(tmp_path.glob("owned")) == []


async def test_while_a_slow_tool_runs_from_its_page_others_are_answered() -> None:
    mcp: FastMCP[Any] = FastMCP("Ferry")
    under_way = anyio.Event()
    others = anyio.Event()

    @mcp.tool(annotations={"readOnlyHint": True})
    async def cross() -> str:
        """Cross the water."""
        under_way.set()
        await others.wait()
        return "over"

    async with open_campus(harbour=mcp) as opened:
        pages: list[str] = []

        async def press() -> None:
            pages.append((await shown(opened.http, await sent(opened.http, "/tools/harbour/cross"), HTML)).text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(press)
            await under_way.wait()
            await anyio.sleep(2 * WATCH_AFTER)  # from then on its caller is watched
            assert (await opened.http.get("/healthz")).status_code == 200
            others.set()
        assert "over" in pages[0]


async def test_a_tool_that_may_delete_something_takes_a_second_step_also_without_a_script(campus: TestCampus) -> None:
    destroying = "recorder/delete_monitor", "cve/delete_watch", "cve/revoke_feed_url"
    for page in (*destroying, "recorder/register_monitor", "cve/create_watch", "cve/brief_teaser"):
        shown = (await campus.http.get(f"/tools/{page}", headers=HTML)).text
        assert shown.count('<input type="checkbox" required>') == (page in destroying), page
