"""The pages in a real headless Chromium: what people do with them, from the start page to an agent that died."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest
from fastmcp import Client
from pages.browsers import NARROW, WIDE, open_page, sideways
from pages.hostile import HOSTILE
from pages.walks import HOOK, beat_of
from patience import patience
from playwright.sync_api import Browser, Page, Route, expect
from serving import Served, serving

from tests import patient

pytest_plugins = "pages.browser_fixtures"
CONFIG = """
[storage]
url = "sqlite:data"
[web]
allowed_hosts = ["127.0.0.1"]
[limits]
free = "off"
keyed = "off"
[products.pass]
scope = "all"
price = "29"
term = "30 days"
[buildings.gateway]
path = "/"
[buildings.cve]
kev_url = "{feeds}/kev.json"
osv_ecosystems = []
kev_mirror_url = "{feeds}/kev.json"
epss_url = "{feeds}/epss.csv"
nvd_url = "{feeds}/nvd.json"
sample = true
free_reports_per_day = 50
[buildings.recorder]
[buildings.harbour]
server = "pages.harbour_server:mcp"
"""
FEEDS = (Path(__file__).parents[2] / "buildings" / "cve" / "sample").as_uri()
"""Feeds that are too small for a first list, unless the operator accepts them."""
PASSWORD = "harbour-master-7"
ENVIRON = {"PYTHONPATH": str(Path(__file__).parents[1]), "CAMPUS_OPERATOR_PASSWORD": PASSWORD}


@pytest.fixture(scope="module")
def served(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served"), CONFIG.format(feeds=FEEDS), environ=ENVIRON) as campus:
        yield campus


def sign_in(page: Page, campus: Served) -> str:
    key = campus.key("pass")
    page.goto(f"{campus.url}/keys")
    page.locator("#field-key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Your key")
    return key


def shows_again(page: Page, text: str) -> None:
    """The page has an address that shows the same after a reload, after Back, and in a second tab."""
    expect(page.locator("main")).to_contain_text(text)
    expect(page).to_have_url(re.compile("/answers/"))
    address = page.url
    page.reload()
    expect(page.locator("main")).to_contain_text(text)
    page.go_back()
    assert page.url != address
    page.go_forward()
    expect(page.locator("main")).to_contain_text(text)
    tab = page.context.new_page()
    tab.goto(address)
    expect(tab.locator("main")).to_contain_text(text)
    tab.close()


async def connect(url: str) -> list[str]:
    """The tools that a real MCP client lists at an address."""
    async with Client(url) as client:
        return [tool.name for tool in await client.list_tools()]


def test_a_snippet_that_is_copied_from_its_page_connects_a_client(browser: Browser, served: Served) -> None:
    with open_page(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto(f"{served.url}/connect")
        page.get_by_role("button", name="Copy: Claude Code without a key: shell").click()
        expect(page.get_by_role("button", name="Copy: Claude Code without a key: shell")).to_have_text("Copied")
        copied = page.evaluate("navigator.clipboard.readText()")
    (address,) = re.findall(r"--transport http gateway (\S+)", copied)
    with ThreadPoolExecutor() as threads:  # Playwright's own event loop runs in this one
        assert "list_buildings" in threads.submit(anyio.run, connect, address).result()


def test_a_monitor_is_followed_from_its_first_beat_to_its_takeover_without_a_reload(browser: Browser, served: Served) -> None:
    with open_page(browser) as page:
        key = sign_in(page, served)
        page.get_by_role("navigation").get_by_role("link", name="Agent monitors").click()
        for label, text in {"Name": "nightly", "A beat every": "0.1", "May be late": "0.1", "Webhook": HOOK}.items():
            page.get_by_label(label).fill(text)
        page.get_by_role("button", name="Register").click()
        beat = beat_of(page)
        page.get_by_role("navigation").get_by_role("link", name="Agent monitors").click()
        patient.get(beat).raise_for_status()
        state = page.locator("#fleet tbody .badge").first
        page.evaluate("window.notReloaded = true")
        expect(page.locator("#fleet .slots .good")).to_have_count(1, timeout=patience(15) * 1000)
        for seen in ("late", "dead"):
            expect(state).to_have_text(seen, timeout=patience(30) * 1000)
        assert page.evaluate("window.notReloaded") is True
        page.get_by_role("link", name="nightly").click()
        page.get_by_text("Take over", exact=True).click()
        page.get_by_role("button", name="Take it over").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Taken over")
        assert key not in page.content()
        page.get_by_role("link", name="To the monitor").click()
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("status").first).to_contain_text("paused")
        page.get_by_role("button", name="Resume").click()
        expect(page.get_by_role("status").first).to_contain_text("alive")
        page.get_by_text("Delete", exact=True).click()
        page.get_by_role("button", name="Delete nightly").click()
        expect(page.locator("main")).to_contain_text("No monitor yet")
        served.command("key", "revoke", re.findall(r"key_\w{12}", served.command("key", "list").stdout)[-1])
        expect(page.get_by_role("link", name="Sign in with another key")).to_be_visible(timeout=patience(15) * 1000)


@pytest.mark.parametrize("script", [True, False], ids=["with script", "without script"])
def test_a_report_that_is_dropped_chosen_or_pasted_by_keyboard_is_put_in_order_and_stays_where_it_is(
    browser: Browser, served: Served, tmp_path: Path, script: bool
) -> None:
    (report := tmp_path / "scan.txt").write_text("CVE-2021-44228 CVE-1999-99999")
    with open_page(browser, java_script_enabled=script, viewport=NARROW) as page:
        page.goto(served.url)
        assert sideways(page) == 0
        if script:
            dropped = "text => { const all = new DataTransfer(); all.items.add(new File([text], 'scan.txt')); return all; }"
            page.dispatch_event("form.drop", "drop", {"dataTransfer": page.evaluate_handle(dropped, report.read_text())})
        else:
            page.get_by_label("Choose your scanner's report").set_input_files(report)
            page.get_by_role("button", name="Put in order").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("2 findings. 1\u00a0to fix today.")
        assert sideways(page) == 0
        page.reload()
        expect(page.locator(".findings li").first).to_contain_text("CVE-2021-44228")
        page.go_back()
        expect(page.get_by_role("heading", level=1)).not_to_contain_text("findings")
        if not script:  # which empties the other field
            page.get_by_label("Choose your scanner's report").set_input_files([])
        page.get_by_text("Or paste it, or CVEs").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.type("CVE-2021-44228")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("1 finding. 1\u00a0to fix today.")


@pytest.mark.parametrize("script", [True, False], ids=["with script", "without script"])
def test_what_the_page_of_a_new_monitor_shows_sends_a_capsule_and_the_page_says_that_it_was_heard(
    browser: Browser, served: Served, tmp_path: Path, script: bool
) -> None:
    with open_page(browser, java_script_enabled=script) as page:
        sign_in(page, served)
        page.goto(f"{served.url}/recorder")
        page.locator("#field-name").fill("walk")
        page.get_by_label("Webhook").fill(HOOK)
        page.get_by_label("Webhook").press("Enter")
        expect(page.locator("#heard")).to_contain_text("Waiting for the first beat")
        tabs = page.get_by_role("radio")
        names = [tab.get_attribute("value") for tab in tabs.all()]
        assert {"curl", "cron", "Claude Code", "Python", "TypeScript", "MCP"} <= set(names)
        tabs.first.focus()
        for _ in range(names.index("Python")):
            page.keyboard.press("ArrowRight")
        shown = page.locator(".tab:visible code")
        expect(shown).to_contain_text("urllib.request")
        subprocess.run([sys.executable, "-c", shown.inner_text()], check=True, timeout=patience(30))
        if script:
            expect(page.locator("#heard")).to_contain_text("We heard you", timeout=patience(20) * 1000)
            expect(page.locator("#heard")).to_contain_text("a capsule of")
        else:
            with page.context.expect_page() as opened:  # another tab: this one shows the secret
                page.get_by_role("link", name="Look again").click()
            expect(opened.value.locator("#heard")).to_contain_text("We heard you")
            opened.value.close()
        page.get_by_role("radio", name="curl").focus()
        page.keyboard.press("Space")
        subprocess.run(["sh", "-c", shown.inner_text()], check=True, timeout=patience(30), cwd=tmp_path)
        monitor = page.get_by_role("link", name="To the monitor").get_attribute("href")
        if script:
            page.goto(f"{served.url}/tools/recorder/heartbeat")
            expect(page.get_by_role("radio", name="curl")).to_be_checked()
        page.goto(f"{served.url}{monitor}/heard")
        expect(page.locator("#heard")).to_contain_text("4 beats, a capsule of")  # two of Python, and a start and an end
        page.goto(f"{served.url}{monitor}")
        page.get_by_text("Delete", exact=True).click()
        page.get_by_role("button", name="Delete walk").click()
        expect(page.locator("main")).to_contain_text("No monitor yet")


def test_a_monitor_without_a_key_turns_green_by_itself_and_moves_to_the_key_of_who_signs_in(browser: Browser, served: Served) -> None:
    with open_page(browser) as page:
        page.goto(f"{served.url}/recorder")
        page.locator("#field-name").fill("stray")
        page.get_by_label("Webhook").fill("http://127.0.0.1:9/stray")
        page.get_by_role("button", name="Register").click()
        patient.get(beat_of(page)).raise_for_status()
        expect(page.locator("#heard")).to_contain_text("We heard you", timeout=patience(20) * 1000)
        page.get_by_role("link", name="To the monitor").click()
        free = page.url
        expect(page.locator("main")).not_to_contain_text("Move it to my key")
        sign_in(page, served)
        page.goto(free)
        page.get_by_role("button", name="Move it to my key").click()
        expect(page.locator("main").get_by_role("link", name="Fleet")).to_be_visible()
        assert page.url != free
        answer = page.goto(free)
        assert answer is not None
        assert answer.status == 404


def test_a_tool_is_called_from_its_page_again_and_again_and_not_sent_again_when_its_answer_was_lost(
    browser: Browser, served: Served
) -> None:
    with open_page(browser) as page:
        sign_in(page, served)
        page.goto(f"{served.url}/tools/recorder/register_monitor")
        page.locator("#field-alert_webhook").fill(HOOK)
        for name in ("first", "second"):
            page.locator("#field-name").fill(name)
            with page.expect_response("**/tools/recorder/register_monitor") as answer:
                page.get_by_role("button", name="Run it").click()
            assert answer.value.status == 303
            expect(page.locator("form[aria-busy]")).to_have_count(0)
        page.goto(f"{served.url}/recorder")
        expect(page.locator("#fleet [role=status]")).to_contain_text("2 of 20 monitors.")
        page.goto(f"{served.url}/tools/cve/brief_teaser")
        page.evaluate("window.readAloud = document.querySelector('#answer [role=status]')")
        button = page.get_by_role("button", name="Call")
        button.press("Enter")
        expect(page.locator("#answer .badge").first).to_have_text("200")
        expect(page.locator("#answer code").first).to_contain_text('"teaser"')
        expect(button).to_be_focused()
        said = page.evaluate("window.readAloud.isConnected && window.readAloud.textContent")
        assert "200" in said, "a screen reader tells what changes in an element that was there before"
        assert "teaser" not in said, "it would read all of the JSON"
        sent: list[str] = []

        def lose(route: Route) -> None:
            sent.append(route.request.method)
            route.abort()

        page.route("**/tools/cve/brief_teaser", lose)
        button.click()
        expect(page.locator("#answer")).to_contain_text("The call may have been made")
        assert sent == ["POST"]


def test_what_a_form_answered_is_there_after_back_a_reload_and_in_a_second_tab(browser: Browser, served: Served) -> None:
    with open_page(browser) as page:
        page.goto(f"{served.url}/recorder")
        page.locator("#field-name").fill("stray")
        page.get_by_label("Webhook").fill("ftp://127.0.0.1/x")
        page.get_by_role("button", name="Register").click()
        shows_again(page, "webhook")
        expect(page.locator("#field-name")).to_have_value("stray")
        page.get_by_label("Webhook").fill(f"{HOOK}/answered")
        page.get_by_role("button", name="Register").click()
        beat = beat_of(page)
        page.reload()
        assert beat_of(page) == beat
        page.goto(f"{served.url}/tools/cve/brief_teaser")
        page.get_by_role("button", name="Call").click()
        shows_again(page, '"teaser"')


def test_a_half_typed_form_survives_a_sign_out_in_another_tab(browser: Browser, served: Served) -> None:
    with open_page(browser) as page:
        sign_in(page, served)
        page.goto(f"{served.url}/recorder")
        page.locator("#field-name").fill("half-typed")
        page.get_by_label("Webhook").fill(HOOK)
        tab = page.context.new_page()
        tab.goto(f"{served.url}/keys")
        tab.get_by_role("button", name="Sign out of this browser").click()
        expect(tab.get_by_role("button", name="Sign in")).to_be_visible()
        tab.close()
        page.get_by_role("button", name="Register").click()
        expect(page.locator("main")).to_contain_text("Please send this again")
        page.get_by_role("link", name="Sign in first").click()
        page.locator("#field-key").fill(served.key("pass"))
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_label("Name", exact=True)).to_have_value("half-typed")
        page.get_by_role("button", name="Send it again").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Monitor registered: half-typed")


def test_an_update_leaves_the_focus_where_it_is_and_a_page_that_nobody_sees_holds_no_connection(browser: Browser, served: Served) -> None:
    with open_page(browser) as page:
        headers = {"Authorization": f"Bearer {sign_in(page, served)}"}
        body = {"name": "watched", "alert_webhook": HOOK}
        made = patient.post(f"{served.url}/v1/recorder/monitors", json=body, headers=headers).json()
        with page.expect_response("**/recorder/events?*"):
            page.goto(f"{served.url}/recorder/{made['monitor_id']}")
        pause = page.get_by_role("button", name="Pause")
        pause.focus()
        uptime = page.locator("#monitor .facts").first
        patient.get(made["beat_url"]).raise_for_status()
        expect(uptime).to_contain_text(", 1 beat")
        expect(pause).to_be_focused()
        see = """seen => {
            Object.defineProperty(document, "hidden", {value: !seen, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
        with page.expect_event("requestfailed", lambda request: "/recorder/events" in request.url):
            page.evaluate(see, False)
        patient.get(made["beat_url"]).raise_for_status()
        page.evaluate(see, True)
        expect(uptime).to_contain_text(", 2 beats")


def test_hostile_names_texts_and_capsules_execute_nothing_and_break_no_layout(browser: Browser, served: Served) -> None:
    with open_page(browser, viewport=NARROW) as page:
        key = sign_in(page, served)
        monitors = []
        for text in HOSTILE:
            body = {"name": text[:100].replace("\u202e", ""), "alert_webhook": HOOK}
            answer = patient.post(f"{served.url}/v1/recorder/monitors", json=body, headers={"Authorization": f"Bearer {key}"})
            assert answer.status_code == 200, answer.text
            monitors.append(answer.json()["monitor_id"])
            patient.post(answer.json()["beat_url"], json={"capsule": {text: [text]}}).raise_for_status()
        paths = ["/", "/docs/api", "/tools/harbour/find", "/recorder", "/keys", f"/recorder/{monitors[0]}", f"/recorder/{monitors[-1]}"]
        paths += ["/cve", "/cve/CVE-2021-44228", "/cve/report"]
        for path in paths:
            page.goto(f"{served.url}{path}")
            for width in (WIDE, NARROW):
                page.set_viewport_size(width)  # type: ignore[arg-type]
                assert sideways(page) == 0, (path, width)
            assert page.title() != "owned"
            assert page.locator("main").count() == 1
            assert weight_of(page) < 100_000, path


def test_an_operator_finds_what_is_wrong_runs_the_refresh_and_issues_a_key(browser: Browser, served: Served) -> None:
    with open_page(browser, viewport=NARROW) as page:
        page.goto(f"{served.admin}/jobs")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        refresh = page.locator("li[id='cve.refresh']")
        expect(refresh).to_contain_text("failed", timeout=patience(30) * 1000)
        expect(refresh).to_contain_text("the first should have 1,000")
        while "try again" in (accepted := served.command("run", "cve.refresh", "--accept")).stderr:
            time.sleep(0.5)  # a run that began meanwhile
        assert accepted.returncode == 0, accepted.stderr
        page.evaluate("window.notReloaded = true")
        page.get_by_role("button", name="Run now: cve.refresh").click()
        expect(refresh).to_contain_text("well", timeout=patience(30) * 1000)
        page.get_by_role("link", name="Keys").click()
        page.get_by_label("Note").fill(HOSTILE[0])
        held: list[Route] = []
        page.route(f"{served.admin}/keys", lambda route: held.append(route))
        issue = "[...document.querySelectorAll('button')].find(one => one.textContent === 'Issue it')"
        page.evaluate(f"{issue}.click(); setTimeout(() => {issue}.click(), 100)")  # the answer takes its time, and a second click comes
        page.wait_for_timeout(300)
        assert len(held) == 1, "one key is issued"
        held[0].continue_()
        page.unroute(f"{served.admin}/keys")
        key = page.locator("pre code").inner_text()
        issued = page.url
        page.reload()
        expect(page.locator("pre code")).to_have_text(key)
        assert patient.get(f"{served.url}/v1/brief/today", headers={"Authorization": f"Bearer {key}"}).status_code == 200
        page.get_by_role("link", name="All keys").click()
        assert key not in page.content()
        for path in ("/", "/jobs", "/keys", "/payments", "/alerts", "/buildings"):
            page.goto(f"{served.admin}{path}")
            assert (sideways(page), page.locator("main").count(), page.title() != "owned") == (0, 1, True), path
            assert weight_of(page) < 100_000, path
            assert path != "/" or {"cve", "recorder"} <= set(page.locator("li", has_text="waiting").first.inner_text().split()), "whose"
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in as the operator")
        page.goto(issued)
        expect(page.locator("main")).not_to_contain_text(key)


def test_a_page_that_follows_what_happens_says_when_it_has_lost_the_connection_and_leads_to_the_sign_in(
    browser: Browser, served: Served
) -> None:
    with open_page(browser) as page:
        page.goto(f"{served.admin}/sign-in")
        page.get_by_label("Password").fill(PASSWORD)
        page.route("**/events", lambda route: route.abort())
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("what is shown here may be old", timeout=patience(20) * 1000)
        page.context.clear_cookies()  # as a restart ends all sessions
        page.unroute("**/events")
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in as the operator", timeout=patience(20) * 1000)


def weight_of(page: Page) -> int:
    weight: int = page.evaluate(
        "performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'))"
        ".reduce((sum, one) => sum + one.decodedBodySize, 0)"
    )
    return weight


def test_the_theme_that_was_chosen_is_kept_on_every_page(browser: Browser, served: Served) -> None:
    with open_page(browser, color_scheme="light") as page:
        page.goto(served.url)
        light = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        for _ in range(2):
            page.get_by_role("button", name="Theme:").click()
        expect(page.get_by_role("button", name="Theme:")).to_have_text("Theme: dark")
        page.goto(f"{served.url}/docs/api")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != light
        expect(page.get_by_role("button", name="Theme:")).to_have_text("Theme: dark")
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == light, "paper is white"


def test_no_other_page_can_frame_a_page(browser: Browser, served: Served) -> None:
    framing, page = (
        "".join(f'<iframe src="{url}"></iframe>' for url in (f"{served.url}/keys", f"{served.admin}/sign-in")),
        browser.new_page(),
    )
    page.route("**/frame-test", lambda route: route.fulfill(content_type="text/html", body=f"<h1>Framing</h1>{framing}"))
    page.goto(f"{served.url}/frame-test")
    page.wait_for_load_state("networkidle")
    assert page.locator("h1").inner_text() == "Framing"
    assert len(page.frames) == 3
    assert "Sign in" not in "".join(frame.content() for frame in page.frames[1:])
    page.close()
