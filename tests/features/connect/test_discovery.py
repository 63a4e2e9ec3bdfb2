"""Where the way in shows itself: below /connect and at its path-inserted addresses, or at a host of its own, and nowhere else."""

from collections.abc import AsyncIterator

import httpx
import pytest
from features.connect.chat_app import HTML, ORIGIN, ChatApp
from features.connect.conftest import make_lock

from campus.errors import ConfigError
from campus.problems import EXPLANATIONS
from campus.testing import TestCampus, open_campus
from tests import patient

pytestmark = pytest.mark.anyio
OWN = "https://connect.example"
P, A, O = "/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"  # noqa: E741
ROOT_DISCOVERY = [
    P,
    A,
    O,
    f"{P}/lock/mcp",
    f"{A}/lock/mcp",
    f"{O}/lock/mcp",
    f"{O}/connect",
    f"/lock/mcp{P}",
    f"/lock/mcp{A}",
    f"/lock/mcp{O}",
]
"""Every address at which clients look for a login of the plain endpoints, and where an OpenID provider would be."""


@pytest.fixture
async def own_host() -> AsyncIterator[TestCampus]:
    """A campus with a host of its own for connected clients."""
    tables = {"server": {"public_url": ORIGIN, "openapi": "lock"}, "connect": {"url": OWN}}
    async with open_campus(lock=make_lock(), tables=tables) as opened:
        yield opened


async def test_no_document_elsewhere_mentions_it_and_root_discovery_is_404_with_json(campus: TestCampus, app: ChatApp) -> None:
    documents = [
        *("/", "/docs/api", "/keys", "/v1/openapi.json", "/openapi.json", "/tools/lock/whoami", "/tools/gateway/how_to_pay"),
        *(f"/{name}/openapi.json" for name in ("harbour", "lock", "gateway")),
        *(f"/v1/{name}" for name in ("harbour", "lock", "gateway")),
        *(f"/v1/gateway/{name}" for name in ("list_buildings", "how_to_pay", "about_service")),
        *(f"/errors/{code}" for code in EXPLANATIONS),
    ]
    for path in documents:
        for accept in ("text/html", "text/markdown", "application/json"):
            answer = await app.http.get(path, headers={"Accept": accept})
            assert answer.status_code in (200, 303), path
            assert "oauth" not in answer.text.lower(), path
            assert "resource_metadata" not in str(answer.headers), path
    for path in ROOT_DISCOVERY:
        for accept in ("application/json", "*/*"):
            answer = await app.http.get(path, headers={"Accept": accept})
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), path
    for tool in ("whoami", "none"):
        refused = await app.ask("tools/call", url=f"{ORIGIN}/lock/mcp", token="", name=tool, arguments={})
        assert "oauth" not in refused.text.lower()
        assert "resource_metadata" not in str(refused.headers)


async def test_every_building_but_one_that_sells_keys_can_be_connected(campus: TestCampus, app: ChatApp) -> None:
    for building in ("harbour", "lock", "gateway"):
        document = (await app.http.get(f"{P}/connect/{building}/mcp")).json()
        assert document["resource"] == f"{app.issuer}/{building}/mcp"
        for method in ("GET", "POST", "DELETE"):
            assert (await app.http.request(method, document["resource"])).status_code == 401
    assert (await app.http.get(f"{app.issuer}/checkout/mcp")).status_code == 404
    assert (await app.http.get(f"{app.issuer}/cve/mcp/", headers=HTML)).status_code == 404


async def test_with_a_host_of_its_own_root_discovery_is_there_and_nothing_is_at_the_services_host(own_host: TestCampus) -> None:
    async with patient.AsyncClient(transport=httpx.ASGITransport(own_host.app), base_url=OWN) as http:
        app = ChatApp(http, issuer=OWN)
        for path in (A, P, f"{P}/lock/mcp"):
            answer = await http.get(path)
            assert (answer.status_code, OWN in answer.text, ORIGIN in answer.text) == (200, True, False), path
        await app.connect(await own_host.key("lock"))
        assert await app.is_let_in()
        style = (await app.page()).text.partition('rel="stylesheet" href="')[2].partition('"')[0]
        assert (await http.get(style)).status_code == 200
        for path in ("/", "/keys", "/connect/lock/mcp", "/v1/lock"):
            assert (await http.get(path)).status_code == 404
        led = await http.get("/keys?next=/docs/api", headers=HTML)
        assert (led.status_code, led.headers["location"]) == (303, f"{ORIGIN}/keys?next=/docs/api"), "a link of the consent page"
        assert (await http.get("/.well-known/openid-configuration", headers=HTML)).status_code == 404
        for path in ("/connect/lock/mcp", f"{A}/connect", A, P):
            assert (await http.get(f"{ORIGIN}{path}")).status_code == 404
        assert (await http.get("https://other.example/")).status_code == 421


@pytest.mark.parametrize(
    ("server", "connect", "sentence"),
    [
        ({"public_url": "http://campus.test"}, {}, r"\[connect\] needs https"),
        ({"host": "0.0.0.0"}, {}, r"server\.public_url is http://0\.0\.0\.0:8000"),
        ({"public_url": ORIGIN}, {"url": "http://connect.example"}, r"connect\.url is http://connect\.example"),
        ({"public_url": ORIGIN}, {"url": ORIGIN}, "at the host of the service"),
    ],
)
async def test_a_connect_table_that_clients_would_refuse_is_refused_at_start(
    server: dict[str, str], connect: dict[str, str], sentence: str
) -> None:
    tables = {"server": {"openapi": "lock", **server}, "connect": connect}
    with pytest.raises(ConfigError, match=sentence):
        async with open_campus(lock=make_lock(), tables=tables):
            pass
