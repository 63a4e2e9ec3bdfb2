"""From the bare address to a paid tool's answer: what a client asks, what it receives, and what shuts it out again."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from itertools import cycle

import httpx
import pytest
from contract.served_campus import UNPAYABLE
from fastmcp import FastMCP
from features.connect.chat_app import CALLBACK, CHALLENGE, HTML, ORIGIN, ChatApp, answer_of, result_of
from features.connect.conftest import CONNECT, make_lock

from campus import Building, access
from campus.caller import Key
from campus.features.connect.connected import Consent
from campus.features.connect.let_in import clients_of
from campus.keys.keyring import KeyRing
from campus.testing import Clock, TestCampus, open_campus
from tests import patient

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]
FIVE_SECONDS = timedelta(seconds=5)


@pytest.fixture
async def stored(clock: Clock, storage_url: str) -> AsyncIterator[TestCampus]:
    """A campus with one building, on each database."""
    async with open_campus(lock=make_lock(), clock=clock, storage=storage_url, tables=lock_alone()) as opened:
        yield opened


@pytest.fixture
async def stored_app(stored: TestCampus, clock: Clock, storage_url: str) -> AsyncIterator[ChatApp]:
    """A client each of whose requests goes to another process than the one before."""
    async with (
        open_campus(lock=make_lock(), clock=clock, storage=storage_url, tables=lock_alone()) as other,
        patient.AsyncClient(transport=InTurns(stored, other), base_url=ORIGIN) as http,
    ):
        yield ChatApp(http)


class InTurns(httpx.AsyncBaseTransport):
    """Sends each request to the next of several campuses."""

    def __init__(self, *campuses: TestCampus) -> None:
        self._turns = cycle([httpx.ASGITransport(one.app) for one in campuses])

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await next(self._turns).handle_async_request(request)


def lock_alone() -> dict[str, object]:
    return {**CONNECT, "server": {"public_url": ORIGIN, "openapi": "lock"}}


async def key_of(campus: TestCampus, product: str = "lock") -> tuple[Key, str]:
    return await campus.service.keys.issue(product)


async def test_a_client_goes_from_the_bare_address_to_an_answer_and_refreshes_whichever_process_answers(
    stored: TestCampus, stored_app: ChatApp
) -> None:
    app, (key, token) = stored_app, await key_of(stored)
    challenge = (await app.ask(token="")).headers["www-authenticate"]
    document = f"{ORIGIN}/.well-known/oauth-protected-resource/connect/lock/mcp"
    assert challenge == f'Bearer resource_metadata="{document}", scope="lock"'
    resource = (await app.http.get(document)).json()
    assert (resource["resource"], resource["authorization_servers"]) == (app.mcp, [app.issuer])
    server = (await app.http.get(f"{ORIGIN}/.well-known/oauth-authorization-server/connect")).json()
    assert (server["issuer"], server["registration_endpoint"], server["token_endpoint"]) == (
        app.issuer,
        f"{app.issuer}/register",
        f"{app.issuer}/token",
    )
    assert server["token_endpoint_auth_methods_supported"] == ["none"]
    assert "offline_access" in server["scopes_supported"]
    assert "offline_access" not in resource["scopes_supported"]
    registered = (await app.register()).json()
    assert registered.get("client_secret") is None
    page = await app.page()
    for shown in ("“Chat app”", "127.0.0.1:7777", "Lock &amp; Weir", "$19"):
        assert shown in page.text
    answer = answer_of(await app.send(page, token))
    assert (answer["to"], answer["state"], answer["iss"]) == (CALLBACK, "a state & more", app.issuer)
    tokens = (await app.redeem(answer["code"])).json()
    assert (tokens["token_type"], tokens["expires_in"], tokens["scope"]) == ("Bearer", 86_400, "lock offline_access")
    assert result_of(await app.ask("tools/call", name="whoami", arguments={}))["content"][0]["text"] == key.lineage
    again = (await app.refresh()).json()
    assert len({tokens["access_token"], tokens["refresh_token"], again["access_token"], again["refresh_token"]}) == 4
    assert [tool["name"] for tool in result_of(await app.ask())["tools"]] == ["whoami"]


Change = Callable[[KeyRing, Key, Clock], Awaitable[object]]


async def revoked(keys: KeyRing, key: Key, clock: Clock) -> None:
    await keys.revoke(key.id)


async def rotated(keys: KeyRing, key: Key, clock: Clock) -> None:
    await keys.rotate(key.id)


async def expired(keys: KeyRing, key: Key, clock: Clock) -> None:
    clock.move(key.expires_at - clock())


@pytest.mark.parametrize("change", [revoked, rotated, expired])
async def test_a_key_that_ends_shuts_its_clients_out_within_five_seconds(
    campus: TestCampus, app: ChatApp, clock: Clock, change: Change
) -> None:
    key, token = await key_of(campus)
    await app.connect(token)
    if change is expired:
        clock.move(timedelta(days=29, hours=12))
        await app.refresh()
    assert await app.is_let_in()
    await change(campus.service.keys, key, clock)
    clock.move(FIVE_SECONDS)
    assert not await app.is_let_in()
    assert (await app.refresh()).json()["error"] == "invalid_grant"
    refused = await app.send(await app.page(), token)
    assert refused.status_code == 403


async def test_a_renewed_key_keeps_its_clients_and_an_access_token_lasts_a_day(campus: TestCampus, app: ChatApp, clock: Clock) -> None:
    key, token = await key_of(campus)
    await app.connect(token)
    clock.move(timedelta(hours=23, minutes=59))
    assert await app.is_let_in()
    clock.move(timedelta(minutes=1))
    assert not await app.is_let_in()
    clock.move(timedelta(days=28))
    await campus.service.keys.renew(key.id)
    clock.move(timedelta(days=3))
    assert (await app.refresh()).status_code == 200  # 32 days after it was issued, for a key of 30 days
    assert await app.is_let_in()


async def test_tokens_open_only_their_own_building_and_keys_open_no_address_of_connected_clients(campus: TestCampus, app: ChatApp) -> None:
    _, token = await key_of(campus, "all")
    await app.connect(token)
    access, refresh = app.tokens["access_token"], app.tokens["refresh_token"]
    assert await app.is_let_in()
    assert not await app.is_let_in(url=f"{app.issuer}/harbour/mcp")
    assert not await app.is_let_in(token=refresh)
    assert not await app.is_let_in(token=token)
    assert not await app.is_let_in(token="campus_access_" + "a" * 49)
    plain = await app.http.post("/v1/lock/whoami", json={}, headers={"Authorization": f"Bearer {access}"})
    assert (plain.status_code, plain.json()["code"]) == (402, "key_unknown")
    over_mcp = await app.ask("tools/call", url=f"{ORIGIN}/lock/mcp", name="whoami", arguments={})
    assert result_of(over_mcp)["structuredContent"]["code"] == "key_unknown"
    refused = await app.ask(token=token)
    assert refused.headers["www-authenticate"].endswith('error="invalid_token"')
    assert refused.json()["detail"].endswith("A key is not taken here: send it to /lock/mcp of the service.")


async def test_the_gateway_takes_any_key_and_a_key_of_another_scope_is_refused(campus: TestCampus, app: ChatApp) -> None:
    _, harbour = await key_of(campus, "harbour")
    refused = await app.send(await app.page(), harbour)
    assert refused.status_code == 403
    assert "has scope harbour, which does not open Lock &amp; Weir; send one of scope all or lock" in refused.text
    app.building = "gateway"
    await app.connect(harbour)
    assert "list_buildings" in [tool["name"] for tool in result_of(await app.ask())["tools"]]


async def test_a_client_revokes_itself_without_a_secret(campus: TestCampus, app: ChatApp) -> None:
    _, token = await key_of(campus)
    await app.connect(token)
    stranger = ChatApp(app.http)
    await stranger.register("http://127.0.0.1:1/else")
    form = {"token": app.tokens["refresh_token"]}
    assert (await app.http.post(f"{app.issuer}/revoke", data={**form, "client_id": stranger.client_id})).status_code == 200
    assert await app.is_let_in()
    assert (await app.http.post(f"{app.issuer}/revoke", data={**form, "client_id": "unknown"})).status_code == 401
    assert (await app.http.post(f"{app.issuer}/revoke", data={**form, "client_id": app.client_id})).status_code == 200
    assert not await app.is_let_in()


async def test_the_holder_of_a_key_sees_its_clients_and_disconnects_one_of_its_own(campus: TestCampus, app: ChatApp) -> None:
    _, token = await key_of(campus)
    await app.connect(token)
    keyed = {"Authorization": f"Bearer {token}"}
    (client,) = (await app.http.get("/keys", headers=keyed)).json()["clients"]
    assert (client["name"], client["building"], client["returns_to"]) == ("Chat app", "lock", "127.0.0.1:7777")
    for key, is_let_in in (((await key_of(campus))[1], True), (token, False)):
        page = await app.http.get("/keys", headers=HTML | {"Authorization": f"Bearer {key}"})
        assert ("Connected clients" in page.text) is (key == token)
        asked = {"Authorization": f"Bearer {token}"}
        form_token = re.search(r'name="form_token" value="(\w+)"', (await app.http.get("/keys", headers=HTML | asked)).text)
        assert form_token is not None
        form = {"form_token": form_token[1], "client": client["id"]}
        answer = await app.http.post("/keys/disconnect", data=form, headers=HTML | {"Authorization": f"Bearer {key}"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/keys")
        assert await app.is_let_in() is is_let_in
    unsigned = await app.http.post("/keys/disconnect", data={"client": client["id"]}, headers=keyed)
    assert unsigned.status_code == 403


async def test_only_the_latest_twenty_clients_of_a_key_stay(campus: TestCampus, app: ChatApp, clock: Clock) -> None:
    key, token = await key_of(campus)
    await app.connect(token)
    consent = Consent(app.client_id, "Chat app", "lock", CHALLENGE, CALLBACK)
    for _ in range(20):
        clock.move(timedelta(seconds=1))
        code = await campus.service.feature("connect").agree(key, consent)
        pair = await campus.service.feature("connect").exchange(code, "code")
        assert pair is not None
    clock.move(FIVE_SECONDS)
    assert not await app.is_let_in()
    assert await app.is_let_in(token=pair.access)
    assert len(await clients_of(campus.service.core.storage, key.lineage, now=campus.service.core.now())) == 20


async def test_a_connected_client_is_offered_no_payment_and_told_to_connect_again(clock: Clock) -> None:
    pier = FastMCP("Pier")
    pier.tool(lambda: "open", name="own", meta=access())
    pier.tool(lambda: "open", name="of_the_gate", meta=access(price="0.01", scope="gate"))
    pier.tool(lambda: "open", name="sold", meta=access(price="0.01", key="never"))
    tables = {**CONNECT, "server": {"public_url": ORIGIN, "openapi": "pier"}, "payments": UNPAYABLE}
    async with (
        open_campus(pier=Building(pier), clock=clock, tables=tables) as opened,
        patient.AsyncClient(transport=httpx.ASGITransport(opened.app), base_url=ORIGIN) as http,
    ):
        app = ChatApp(http, building="pier")
        await app.connect(await opened.key("pier"))
        assert result_of(await app.ask("tools/call", name="own", arguments={})).get("isError", False) is False
        for tool, code in (("of_the_gate", "insufficient_scope"), ("sold", "access_required")):
            refused = result_of(await app.ask("tools/call", name=tool, arguments={}))["structuredContent"]
            assert refused["code"] == code
            assert {"accepts", "x402Version"}.isdisjoint(refused)
            assert "x402" not in str(refused)
            assert "header" not in str(refused)
        plain = result_of(await app.ask("tools/call", url=f"{ORIGIN}/pier/mcp", token="", name="sold", arguments={}))
        assert plain["structuredContent"]["accepts"]


async def test_without_documents_clients_register(clock: Clock) -> None:
    tables = {**CONNECT, "server": {"public_url": ORIGIN, "openapi": "lock"}, "connect": {"client_documents": False}}
    async with (
        open_campus(lock=make_lock(), clock=clock, tables=tables) as opened,
        patient.AsyncClient(transport=httpx.ASGITransport(opened.app), base_url=ORIGIN) as http,
    ):
        metadata = (await http.get("/.well-known/oauth-authorization-server/connect")).json()
        assert metadata["client_id_metadata_document_supported"] is False
        named = await ChatApp(http, client_id="https://chat.example/client.json").authorize()
        assert (named.status_code, "not registered here" in named.text) == (400, True)
        await ChatApp(http).connect(await opened.key("lock"))


async def test_without_a_connect_table_nothing_of_it_is_served(clock: Clock) -> None:
    async with open_campus(lock=make_lock(), clock=clock) as opened:
        for path in ("/connect/lock/mcp", "/connect/authorize", "/.well-known/oauth-authorization-server/connect"):
            assert (await opened.http.get(path, headers=HTML)).status_code == 404
