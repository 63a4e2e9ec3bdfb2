"""What the way in refuses: bad redirect URIs, requests and codes, forms of other sites, replays and floods. Nothing leaks."""

import asyncio
import secrets
from datetime import timedelta

import anyio
import pytest
from features.connect.chat_app import CALLBACK, CHALLENGE, HTML, ORIGIN, VERIFIER, ChatApp, answer_of
from patience import patience
from sqlmodel import select

from campus.features.connect.tables import ClientRow, TokenRow
from campus.keys.tokens import new_client_token
from campus.testing import Clock, TestCampus

pytestmark = pytest.mark.anyio
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
REMOTE = "https://chat.example/callback"


async def test_a_registration_whose_redirect_uris_could_be_misused_is_refused(app: ChatApp) -> None:
    refused = [
        ["javascript:alert(1)"],
        ["data:text/html,x"],
        ["http://evil.example/cb"],
        ["http://127.0.0.1.evil.example/cb"],
        ["http://localhost@evil.example/cb"],
        ["https://user:word@a.example/cb"],
        ["https://a.example/cb#part"],
        ["https://a.example/cb#"],
        ["file:///etc/passwd"],
        ["claude://callback"],
        [CALLBACK, "javascript://127.0.0.1/%0aalert(1)"],
        [f"https://a.example/{number}" for number in range(11)],
        ["https://a.example/" + "a" * 1_500],
    ]
    for uris in refused:
        answer = await app.register(*uris)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_redirect_uri"), uris


async def rows(campus: TestCampus) -> int:
    async with campus.service.core.storage.read() as session:
        found = [(await session.exec(select(table))).all() for table in (ClientRow, TokenRow)]
    return sum(map(len, found))


async def test_a_registration_stores_nothing_and_its_answer_holds_no_more_than_is_used(campus: TestCampus, app: ChatApp) -> None:
    assert (await app.http.post(f"{app.issuer}/register", content=b"{" + b" " * 20_000 + b"}")).json()["error"] == "invalid_client_metadata"
    assert (await app.http.post(f"{app.issuer}/register", content=b"[" * 10_000)).status_code == 400
    answer = await app.http.post(
        f"{app.issuer}/register",
        json={
            "client_name": "Chat\u202e\n<script>" + "x" * 9_000,
            "redirect_uris": [CALLBACK],
            "logo_uri": "https://a.example/logo",
            "scope": "admin",
            "token_endpoint_auth_method": "client_secret_basic",
        },
    )
    assert answer.status_code == 201
    assert len(answer.content) < 1_500
    assert {"client_secret", "logo_uri"}.isdisjoint({name for name, value in answer.json().items() if value is not None})
    before = await rows(campus)
    app.client_id = answer.json()["client_id"]
    page = await app.page()
    assert "<script>x" not in page.text
    assert "“Chat &lt;script&gt;xxx" in page.text
    for _ in range(50):
        await app.page()
    assert await rows(campus) == before


async def test_an_invented_client_or_another_redirect_uri_is_refused_without_a_redirect(app: ChatApp) -> None:
    await app.register()
    id_of_this = app.client_id
    other = "B" if id_of_this[20] != "B" else "C"
    for invented in (
        "",
        "unknown",
        id_of_this[:-1],
        id_of_this[:20] + other + id_of_this[21:],
        "campus_client_\u00e9",
        "campus_client_",
        "x" * 9_000,
    ):
        answer = await app.authorize(client_id=invented)
        assert (answer.status_code, answer.headers.get("location")) == (400, None), invented
    wrong = (
        None,
        "https://evil.example/",
        "http://127.0.0.1:7777/other",
        "http://localhost:7777/callback",
        "http://127.0.0.1:7777/callback/../x",
        "http://127.0.0.1:7777/callback?x=1",
        "http://127.0.0.1:7777@evil.example/callback",
    )
    for uri in wrong:
        answer = await app.authorize(redirect_uri=uri)
        assert (answer.status_code, answer.headers.get("location")) == (400, None), uri
    elsewhere = await app.authorize(redirect_uri=CALLBACK.replace("7777", "9"))
    assert elsewhere.status_code == 302  # another port of the same machine is the same client
    twice = await app.http.get(f"{app.issuer}/authorize?client_id={id_of_this}&client_id={id_of_this}", headers=HTML)
    assert (twice.status_code, "more than once" in twice.text) == (400, True)


async def test_a_wrong_request_is_reported_in_plain_words_to_a_local_program_and_to_the_user_of_a_remote_one(app: ChatApp) -> None:
    wrong: list[tuple[dict[str, str | None], str, str]] = [
        ({"code_challenge": None}, "invalid_request", "code_challenge is missing"),
        ({"code_challenge": "abc"}, "invalid_request", "code_challenge is not a SHA-256 digest"),
        ({"code_challenge_method": "plain"}, "invalid_request", "code_challenge_method must be 'S256'"),
        ({"response_type": "token"}, "unsupported_response_type", "response_type must be 'code'"),
        (
            {"response_type": "token", "code_challenge": None},
            "unsupported_response_type",
            "response_type must be 'code'; code_challenge is missing",
        ),
        ({"resource": None}, "invalid_target", "send the parameter resource"),
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target", "send the parameter resource"),
        ({"resource": f"{ORIGIN}/lock/mcp"}, "invalid_target", "send the parameter resource"),
        ({"state": "s" * 6_000}, "invalid_request", "the request is too long"),
    ]
    remote = ChatApp(app.http, callback=f"{REMOTE}?chat=1")
    await app.register()
    await remote.register()
    for changed, error, words in wrong:
        answer = answer_of(await app.authorize(**changed))
        assert (answer["to"], answer["error"], answer["iss"]) == (CALLBACK, error, app.issuer), changed
        assert answer["state"] == changed.get("state", "a state & more")
        assert answer["error_description"].startswith(words), changed
        page = await remote.authorize(**changed)
        assert (page.status_code, page.headers.get("location")) == (400, None)  # no open redirect for whoever registers
        assert f'href="{REMOTE}?chat=1&amp;error={error}' in page.text
        assert words.replace("'", "&#39;") in page.text
    unread = await app.authorize(redirect_uri="callback")
    assert (unread.status_code, "redirect_uri must be a URL, such as https://example.com." in unread.text) == (400, True)


async def test_a_registration_that_cannot_be_read_is_refused_in_plain_words(app: ChatApp) -> None:
    for sent, words in {
        "no": "send a JSON object",
        "[]": "send a JSON object",
        "{}": "redirect_uris is missing",
        '{"redirect_uris": []}': "redirect_uris must not be empty",
        f'{{"redirect_uris": ["{CALLBACK}", "b"]}}': "redirect_uris.1 must be a URL, such as https://example.com",
        '{"redirect_uris": 5, "client_name": 5}': "client_name must be a text; redirect_uris must be a list",
        f'{{"redirect_uris": ["{CALLBACK}"], "grant_types": [5]}}': "grant_types.0 must be a text",
        f'{{"redirect_uris": ["{CALLBACK}"], "application_type": "cli"}}': "application_type must be 'web' or 'native'",
        f'{{"redirect_uris": ["{CALLBACK}"], "logo_uri": "ftp://a.example"}}': "logo_uri must be a URL, such as https://example.com",
    }.items():
        answer = await app.http.post(f"{app.issuer}/register", content=sent)
        assert (answer.status_code, answer.json()) == (400, {"error": "invalid_client_metadata", "error_description": words}), sent


async def test_a_request_for_tokens_that_cannot_be_read_is_refused_in_plain_words(app: ChatApp) -> None:
    await app.register()
    code = {"grant_type": "authorization_code", "code": "c", "redirect_uri": CALLBACK, "code_verifier": VERIFIER}
    for form, words in (
        ({"grant_type": "authorization_code"}, "code is missing; code_verifier is missing"),
        ({"grant_type": "refresh_token"}, "refresh_token is missing"),
        ({"code": "c"}, "grant_type is missing; code_verifier is missing"),
        ({**code, "redirect_uri": "callback"}, "redirect_uri must be a URL, such as https://example.com"),
    ):
        answer = await app.http.post(f"{app.issuer}/token", data={"client_id": app.client_id, **form})
        assert (answer.status_code, answer.json()) == (400, {"error": "invalid_request", "error_description": words})


async def test_the_page_cannot_be_framed_stored_or_read_by_its_client_and_its_form_may_lead_to_any_client(app: ChatApp) -> None:
    page = await app.page()
    policy = page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "form-action" not in policy
    assert (page.headers["x-frame-options"], page.headers["cache-control"], page.headers["referrer-policy"]) == (
        "DENY",
        "no-store",
        "same-origin",
    )


async def test_a_form_of_another_site_or_a_wrong_key_gets_no_code(campus: TestCampus, app: ChatApp) -> None:
    _, token = await campus.service.keys.issue("lock")
    page = await app.page()
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Cookie": "__Host-campus_form=" + "z" * 32}):
        refused = await app.send(page, token, headers=headers)
        assert (refused.status_code, "location" in refused.headers) == (403, False)
    without = await app.http.post(str(page.url), data={"key": token, "answer": "allow"}, headers=HTML)
    assert without.status_code == 403
    wrong = await app.send(page, token[:-1] + ("x" if token[-1] != "x" else "y"))
    assert (wrong.status_code, "This key is unknown" in wrong.text, token[:-1] in wrong.text) == (403, True, False)
    denied = answer_of(await app.send(page, "", answer="deny"))
    assert (denied["error"], denied["iss"], denied["state"]) == ("access_denied", app.issuer, "a state & more")
    assert "code" in answer_of(await app.send(page, token))


async def test_a_request_that_is_old_changed_or_from_elsewhere_is_over(app: ChatApp, clock: Clock) -> None:
    page = await app.page()
    address = str(page.url)
    for changed in (
        address[:-6] + "AAAAAA",
        address.partition("?")[0],
        address.partition("=")[0] + "=%00",
        address.partition("=")[0] + "=abcd",
    ):
        assert (await app.http.get(changed, headers=HTML)).status_code == 400
    clock.move(timedelta(minutes=10))
    assert "over" in (await app.http.get(address, headers=HTML)).text
    assert (await app.send(page, "any")).status_code == 400


async def test_keys_are_tried_ten_times_a_minute_per_address(campus: TestCampus, app: ChatApp, clock: Clock) -> None:
    _, token = await campus.service.keys.issue("lock")
    page = await app.page()
    statuses = [(await app.send(page, "campus_live_wrong")).status_code for _ in range(10)]
    assert statuses == [403] * 10
    limited = await app.send(page, "campus_live_wrong")
    assert (limited.status_code, limited.headers["retry-after"]) == (429, "6")
    assert (await app.send(page, token)).status_code == 303  # nobody is shut out by who tries keys at the same address
    clock.move(timedelta(seconds=6))
    assert (await app.send(page, "campus_live_wrong")).status_code == 403


async def test_revoking_a_token_that_was_made_up_waits_for_no_writer(campus: TestCampus, app: ChatApp) -> None:
    await app.register()
    async with campus.service.core.storage.write():
        with anyio.fail_after(patience(20)):
            for kind in ("access", "refresh"):
                form = {"token": new_client_token(kind, secrets.token_bytes), "client_id": app.client_id}
                assert (await app.http.post(f"{app.issuer}/revoke", data=form)).status_code == 200


async def test_a_code_is_bound_to_its_client_its_verifier_its_redirect_uri_and_its_resource_for_a_minute(
    campus: TestCampus, app: ChatApp, clock: Clock
) -> None:
    _, token = await campus.service.keys.issue("all")
    code = await app.code(token)
    other = ChatApp(app.http)
    await other.register("http://127.0.0.1:1/else")
    for changed in (
        {"client_id": other.client_id},
        {"client_id": "https://chat.example/client.json"},
        {"code_verifier": "w" * 43},
        {"code_verifier": CHALLENGE},
        {"code_verifier": "short"},
        {"redirect_uri": "http://127.0.0.1:7778/callback"},
        {"resource": f"{app.issuer}/harbour/mcp"},
        {"grant_type": "client_credentials"},
        {"code": "campus_code_" + "0" * 49},
    ):
        answer = await app.redeem(code, **changed)
        assert (answer.status_code, "access_token" in answer.text) == (400, False), changed
    assert (await app.redeem(code, client_id="invented")).status_code == 401
    assert (await app.http.post(f"{app.issuer}/token", json={"grant_type": "authorization_code", "code": code})).status_code == 400
    clock.move(timedelta(seconds=59))
    assert (await app.redeem(code, resource=app.mcp)).status_code == 200
    late = await app.code(token)
    clock.move(timedelta(seconds=60))
    assert (await app.redeem(late)).json()["error"] == "invalid_grant"


async def test_a_code_that_is_used_twice_ends_all_its_tokens(campus: TestCampus, app: ChatApp) -> None:
    _, token = await campus.service.keys.issue("lock")
    code = await app.code(token)
    await app.redeem(code)
    await app.refresh()
    assert await app.is_let_in()
    assert (await app.redeem(code, code_verifier="w" * 43)).status_code == 400
    assert await app.is_let_in()  # who does not know the verifier ends nothing
    assert (await app.redeem(code)).json()["error"] == "invalid_grant"
    assert not await app.is_let_in()
    assert (await app.refresh()).json()["error"] == "invalid_grant"


async def test_a_refresh_token_works_again_for_two_minutes_and_ends_everything_afterwards(
    campus: TestCampus, app: ChatApp, clock: Clock
) -> None:
    _, token = await campus.service.keys.issue("lock")
    first = (await app.connect(token))["refresh_token"]
    both = [await app.refresh(first), await app.refresh(first)]
    assert {answer.status_code for answer in both} == {200}
    assert both[0].json()["refresh_token"] != both[1].json()["refresh_token"]
    clock.move(timedelta(minutes=2))
    assert (await app.refresh(first)).status_code == 200
    clock.move(timedelta(microseconds=1))
    assert await app.is_let_in()
    stolen = await app.refresh(first)
    assert stolen.json()["error"] == "invalid_grant"
    assert not await app.is_let_in()
    assert (await app.refresh()).json()["error"] == "invalid_grant"


async def test_of_a_client_that_refreshes_for_ever_a_hundred_tokens_are_kept(campus: TestCampus, app: ChatApp, clock: Clock) -> None:
    _, token = await campus.service.keys.issue("lock")
    before = await rows(campus)
    latest = (await app.connect(token))["refresh_token"]
    for _ in range(55):
        clock.move(timedelta(seconds=1))
        pair = await campus.service.feature("connect").exchange(latest, "refresh")
        assert pair is not None
        latest = pair.refresh
    assert await rows(campus) <= before + 103
    assert not await app.is_let_in()  # its first token is among the oldest
    assert await app.is_let_in(token=pair.access)


async def test_of_many_that_send_one_code_at_once_none_keeps_a_token(campus: TestCampus, app: ChatApp) -> None:
    _, token = await campus.service.keys.issue("lock")
    code = await app.code(token)
    answers = await asyncio.gather(*(app.redeem(code) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] + [400] * 7
    assert not await app.is_let_in()


async def test_the_errors_of_the_client_endpoints_are_oauth_errors_and_repeat_no_secret(app: ChatApp) -> None:
    form = {"grant_type": "authorization_code", "code": "a-secret-code", "code_verifier": VERIFIER, "client_id": "a-secret-client"}
    for path, wrong in (
        ("token", form),
        ("token", {}),
        ("token", {**form, "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}),
        ("revoke", {"token": "a-secret-token"}),
        ("revoke", {}),
    ):
        answer = await app.http.post(f"{app.issuer}/{path}", data=wrong)
        assert answer.status_code in (400, 401)
        assert answer.json()["error"]
        assert "secret" not in answer.text
        assert answer.headers["cache-control"] == "no-store"
    for grant in ("password", "client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"):
        answer = await app.http.post(f"{app.issuer}/token", data={**form, "grant_type": grant})
        assert (answer.status_code, answer.json()["error"]) == (400, "unsupported_grant_type")
    for body in ("code=1&code=2", "&".join(f"p{number}=1" for number in range(2_000)), "&" * 2**20, "code=" + "%41" * 10_000):
        for path in ("token", "revoke"):
            answer = await app.http.post(
                f"{app.issuer}/{path}", content=body, headers={"Content-Type": "application/x-www-form-urlencoded"}
            )
            assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


async def test_a_browsers_page_of_any_origin_can_use_the_client_endpoints_and_reads_the_challenge(app: ChatApp) -> None:
    origin = {"Origin": "https://inspector.example"}
    asked = {**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    for path in ("token", "register", "lock/mcp"):
        preflight = await app.http.options(f"{app.issuer}/{path}", headers=asked)
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, "*")
    refused = await app.http.post(app.mcp, json={}, headers=origin)
    assert "WWW-Authenticate" in refused.headers["access-control-expose-headers"]
