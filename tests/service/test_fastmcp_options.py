"""What an author gives to FastMCP passes through campus: the answers of the bare server and of the same one behind campus are compared."""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from fastmcp import Context, FastMCP
from fastmcp.utilities.tasks import TaskConfig
from mcp_oracle import LEGACY, MODERN, Request, ask, request_of

from campus import access, free
from campus.errors import LoadError
from campus.layout import add_app
from campus.testing import open_campus

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning"),  # logs and progress: older clients have them
]
DOCUMENT = Path(__file__).parents[2] / "docs" / "fastmcp.md"
THEMES = ["nature", "love", "adventure"]
TOKEN = {"progressToken": "t"}


def author() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP(
        "Poems",
        "Ask for a poem.",
        version="3",
        website_url="https://poems.test/",
        icons=[mcp_types.Icon(src="https://poems.test/icon.png")],
        list_page_size=2,
        cache_ttl=60_000,
        cache_scope="public",
        client_log_level="warning",
        experimental_capabilities={"poems": {"rhymes": True}},
        resource_security=None,
    )

    @mcp.completion
    def complete(reference: Any, argument: Any, context: Any) -> list[str] | None:
        return [each for each in THEMES if each.startswith(argument.value)]

    @mcp.tool(meta=free())
    async def recite(ctx: Context) -> str:
        """Recite a poem. No key is needed."""
        await ctx.debug("unheard")
        await ctx.warning("a long poem")
        await ctx.report_progress(1, 2, "half")
        return "poem"

    for name in ("a", "b", "c"):
        mcp.tool(lambda: "x", name=name, description="A letter.\n\nFree; no key is needed.", meta=free())
        mcp.prompt(lambda theme: theme, name=f"prompt_{name}")
        mcp.resource(f"poem://{name}/{{path*}}", name=name)(lambda path: path)
    return mcp


def requests() -> Iterator[Request]:
    for version in (MODERN, LEGACY):
        for method in ("server/discover", "prompts/list", "resources/list", "resources/templates/list", "tools/list"):
            yield request_of(method, version, method, {})
        for method in ("tools/list", "prompts/list", "resources/templates/list"):
            yield request_of(f"the end of {method}", version, method, {"cursor": "eyJvIjogMn0="})
            yield request_of(f"a false cursor of {method}", version, method, {"cursor": "?"})
        for reference in ({"type": "ref/prompt", "name": "prompt_a"}, {"type": "ref/resource", "uri": "poem://a/{path*}"}):
            params = {"ref": reference, "argument": {"name": "theme", "value": "n"}}
            yield request_of("completion", version, "completion/complete", params)
        for path in ("x", "../x", "/etc/passwd"):
            yield request_of(path, version, "resources/read", {"uri": f"poem://a/{path}"})
        yield request_of("progress and logs", version, "tools/call", {"name": "recite", "arguments": {}}, meta=TOKEN)
    initialize = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "oracle", "version": "1"}}
    yield request_of("initialize", LEGACY, "initialize", initialize)


def comparable(text: str) -> Any:
    message = json.loads(text)
    result = message.get("result", {})
    return message | {"result": {**result, "tools": [tool["name"] for tool in result.get("tools", [])]}}


async def test_completions_hints_pages_progress_and_logs_are_those_of_the_bare_server() -> None:
    mcp = author()
    bare = mcp.http_app(path="/poems/mcp", stateless_http=True)
    async with bare.router.lifespan_context(bare), open_campus(poems=author(), settings={"expose": ["prompts", "resources"]}) as campus:
        for request in requests():
            expected, found = await ask(bare, "/poems/mcp", request), await ask(campus.app, "/poems/mcp", request)
            assert found.status == expected.status, request.what
            assert [comparable(each) for each in found.texts] == [comparable(each) for each in expected.texts], request.what


@pytest.mark.parametrize("exposed", [(), ("prompts",)])
async def test_values_are_completed_only_for_what_is_exposed(exposed: tuple[str, ...]) -> None:
    async with open_campus(poems=author(), settings={"expose": exposed}) as campus:
        answers = {}
        for kind, target in (("prompt", {"name": "prompt_a"}), ("resource", {"uri": "poem://a/{path*}"})):
            params = {"ref": {"type": f"ref/{kind}", **target}, "argument": {"name": "theme", "value": ""}}
            answers[kind] = "".join((await ask(campus.app, "/poems/mcp", request_of(kind, MODERN, "completion/complete", params))).texts)
        assert ["nature" in answers[kind] for kind in ("prompt", "resource")] == [bool(exposed), False]


async def test_an_app_is_open_to_everybody_as_from_the_bare_server_and_no_other_resource_is() -> None:
    mcp: FastMCP[Any] = FastMCP("Tides")
    app = add_app(mcp, "ui://tides/table.html", title="<Tides>", body="<main></main>")
    mcp.resource("data://tides/all.json", name="all")(lambda: "everything")

    @mcp.tool(app=app, meta=access(price="0.01"))
    async def table(port: str) -> str:
        """The table."""
        return port

    uris = ("ui://tides/table.html", "data://tides/all.json")
    bare = mcp.http_app(path="/tides/mcp", stateless_http=True)
    async with bare.router.lifespan_context(bare), open_campus(tides=mcp) as campus:
        for version in (MODERN, LEGACY):
            requests = [request_of("read", version, "resources/read", {"uri": uri}) for uri in uris]
            requests += [request_of("list", version, f"{kind}/list", {}) for kind in ("resources", "tools")]
            (page, _, _, listed), (found, hidden, resources, tools) = [
                [json.loads((await ask(each, "/tides/mcp", request)).texts[0]) for request in requests] for each in (bare, campus.app)
            ]
            (shown,) = found["result"]["contents"]
            assert [shown] == page["result"]["contents"]
            assert shown["mimeType"] == "text/html;profile=mcp-app"
            assert "<title>&lt;Tides&gt;</title>" in shown["text"]
            assert "error" in hidden
            assert [one["uri"] for one in resources["result"]["resources"]] == [uris[0]]
            assert tools["result"]["tools"][0]["_meta"]["ui"] == listed["result"]["tools"][0]["_meta"]["ui"] == {"resourceUri": uris[0]}


class Bypassed(FastMCP[Any]):
    """A server that answers in a method of FastMCP, past all middleware."""

    async def call_tool(self, *_: Any, **__: Any) -> Any:
        raise PermissionError


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        (Bypassed("Poems"), "the server of building 'poems' overrides call_tool of FastMCP, so that its calls may pass by"),
        (FastMCP("Poems", tasks=True), "tool 'letter' of building 'poems' runs as a background task"),
    ],
    ids=["overridden", "tasks"],
)
async def test_what_cannot_pass_is_refused_with_a_sentence(server: FastMCP[Any], sentence: str) -> None:
    async def letter() -> str:
        """A tool."""
        return "a"

    server.tool(letter, task=TaskConfig(mode="optional") if "task" in sentence else None)
    with pytest.raises(LoadError, match=sentence):
        async with open_campus(poems=server):
            pass


def test_every_option_of_fastmcp_is_decided() -> None:
    options = set(inspect.signature(FastMCP.__init__).parameters) - {"self", "kwargs"}
    methods = {name for name in dir(FastMCP) if name.startswith("add_")}
    decided = set(re.findall(r"^\| `(\w+)`", DOCUMENT.read_text(), re.MULTILINE))
    assert decided == options | methods, "decide in docs/fastmcp.md how it reaches callers, and carry it in campus/catalog/authors.py"
