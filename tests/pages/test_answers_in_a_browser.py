"""The answers to forms in a real browser: after Back, a reload, in a second tab, after a double click, and when the server was killed."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import patient
import pytest
from pages.browsers import open_browser, open_page
from patience import patience
from playwright.sync_api import Browser, Page, expect
from serving import Served, serving, start, wait_until_it_answers

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
osv_ecosystems = []
sample = true
[buildings.recorder]
"""
PASSWORD = "harbour-master-7"
ENVIRON = {"PYTHONPATH": str(Path(__file__).parents[1]), "CAMPUS_OPERATOR_PASSWORD": PASSWORD}
HOOK = "http://127.0.0.1:9/hook"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def served(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served"), CONFIG, environ=ENVIRON) as campus:
        yield campus


def sign_in(page: Page, campus: Served) -> None:
    page.goto(f"{campus.url}/keys")
    page.locator("#field-key").fill(campus.key("pass"))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Your key")


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


@pytest.mark.parametrize("script", [True, False], ids=["with script", "without script"])
def test_what_a_form_answered_is_there_after_back_a_reload_and_in_a_second_tab(browser: Browser, served: Served, script: bool) -> None:
    with open_page(browser, java_script_enabled=script) as page:
        page.goto(f"{served.url}/recorder")
        page.locator("#field-name").fill("stray")
        page.get_by_label("Webhook").fill("ftp://127.0.0.1/x")
        page.get_by_role("button", name="Register").click()
        shows_again(page, "webhook")
        expect(page.locator("#field-name")).to_have_value("stray")
        page.get_by_label("Webhook").fill(f"{HOOK}/{script}")
        page.get_by_role("button", name="Register").click()
        shows_again(page, "/beat/")
        free = page.url
        sign_in(page, served)
        page.goto(free)
        expect(page.locator("main")).to_contain_text("/beat/")
        page.goto(f"{served.url}/recorder")
        page.locator("#field-name").fill("nightly")
        page.get_by_label("Webhook").fill(HOOK)
        page.get_by_role("button", name="Register").click()
        shows_again(page, "/beat/")
        beat = re.search(r"http\S+/beat/\w+/\w+", page.inner_text("main"))
        assert beat is not None
        patient.get(beat[0], params={"status": "fail"}).raise_for_status()
        page.get_by_role("link", name="To the monitor").click()
        monitor = page.url
        page.get_by_text("Take over", exact=True).click()
        page.get_by_role("button", name="Take it over").click()
        shows_again(page, "Taken over")
        taken = page.url
        page.goto(f"{served.url}/tools/recorder/register_monitor")
        page.locator("#field-name").fill("refused")
        page.locator("#field-alert_webhook").fill("ftp://127.0.0.1/x")
        page.get_by_role("button", name="Run it").click()
        shows_again(page, "422")
        page.goto(f"{served.url}/tools/cve/brief_teaser")
        page.get_by_role("button", name="Call").click()
        shows_again(page, '"teaser"')
        page.goto(f"{served.url}/keys")
        page.get_by_role("button", name="Sign out of this browser").click()
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()
        page.goto(monitor)
        expect(page.locator("main")).not_to_contain_text("nightly")
        page.goto(taken)
        expect(page.locator("main")).to_contain_text("to no other browser")  # what was shown before signing out


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
        shows_again(page, "Please send this again")
        page.get_by_role("link", name="Sign in first").click()
        page.locator("#field-key").fill(served.key("pass"))
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_label("Name", exact=True)).to_have_value("half-typed")
        page.get_by_role("button", name="Send it again").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Monitor registered: half-typed")


def test_an_operators_key_is_shown_again_and_a_search_too(browser: Browser, served: Served) -> None:
    with open_page(browser) as page:
        page.goto(f"{served.admin}/keys")
        page.get_by_label("Password").fill("wrong-password-1")
        page.get_by_role("button", name="Sign in").click()
        shows_again(page, "This is not the password")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("button", name="Issue it").click()
        shows_again(page, "campus_live_")
        issued = page.url
        page.goto(f"{served.admin}/keys")
        page.get_by_label("Search").fill("key_")
        page.locator("form[action='/keys/search'] button").first.click()
        shows_again(page, "key_")
        page.goto(f"{served.admin}/")
        page.get_by_role("button", name="Run all checks").click()
        shows_again(page, "check")
        page.get_by_role("navigation").get_by_role("link", name="Keys", exact=True).click()
        page.goto(f"{served.admin}/")
        page.get_by_role("button", name="Sign out").click()
        page.goto(issued)
        expect(page.locator("main")).not_to_contain_text("campus_live_")


def test_a_double_click_registers_once_and_a_server_that_was_killed_shows_what_it_answered(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, CONFIG, environ=ENVIRON) as campus, open_page(browser, java_script_enabled=False) as page:
        page.goto(f"{campus.url}/recorder")
        page.locator("#field-name").fill("once")
        page.get_by_label("Webhook").fill(HOOK)
        page.route("**/answers/*", lambda route: route.abort())  # the connection breaks off between POST and GET
        with page.expect_request("**/answers/*") as asked:
            page.get_by_role("button", name="Register").dblclick(no_wait_after=True)
        campus.process.send_signal(signal.SIGKILL)
        campus.process.wait(patience(20))
        with campus.config.with_suffix(".log").open("ab") as log:
            again = start(campus.words, campus.environ, log)
            try:
                wait_until_it_answers(Served(campus.url, campus.config, again, campus.words, campus.environ, campus.admin))
                page.unroute("**/answers/*")
                page.goto(asked.value.url)
                expect(page.locator("main")).to_contain_text("/beat/")
                page.goto(f"{campus.admin}/sign-in")
                page.get_by_label("Password").fill(PASSWORD)
                page.get_by_role("button", name="Sign in").click()
                page.goto(f"{campus.admin}/buildings")
                expect(page.locator("main")).to_contain_text("1, 0 of them owned by keys")
            finally:
                again.send_signal(signal.SIGTERM)
                again.wait(patience(20))
