"""axe-core's rules on every page, the operator's too, in light and dark, at 360 and 1,280 pixels, in a headless Chromium."""

from collections.abc import Iterator, Sequence

from contract.served_campus import OPERATOR_PASSWORD, ServedCampus
from lab.conformance.node import Node
from pages.browsers import NARROW, WIDE, open_browser
from playwright.sync_api import Browser, BrowserContext

from tests import patient

PACKAGES = ("axe-core@4.14.1",)
FOR_ALL = (
    "/",
    "/docs/api",
    "/connect",
    "/v1/cve",
    "/tools/cve/cve_verdict",
    "/tools/recorder/register_monitor",
    "/cve",
    "/cve/CVE-2021-44228",
    "/cve/next",
    "/cve/methodology",
    "/cve/report",
    "/cve/watches",
    "/recorder",
    "/keys",
    "/pricing",
    "/status",
    "/pricing/campus-pass",
    "/docs",
    "/docs/tutorial",
    "/docs/buyers",
    "/v1/brief/today",
    "/errors",
    "/errors/not_found",
    "/nothing",
)
OF_OPERATOR = ("/sign-in", "/", "/jobs", "/keys", "/usage", "/payments", "/alerts", "/buildings", "/nothing")
WITH_KEY = (
    "/keys",
    "/keys/receipt",
    "/pricing/campus-pass?renew",
    "/cve",
    "/cve/CVE-2021-44228",
    "/cve/next",
    "/cve/report",
    "/cve/watches",
    "/recorder",
)
RUN = "async () => (await axe.run(document, {resultTypes: ['violations']})).violations.map((one) => [one.id, one.nodes[0].html])"
Found = tuple[str, str]


def check_accessibility(node: Node, campus: ServedCampus) -> list[str]:
    axe = (node.folder / "node_modules" / "axe-core" / "axe.min.js").read_text()
    headers = {"Authorization": f"Bearer {campus.tokens.campus_pass}"}
    body = {"name": "nightly backup", "alert_webhook": "http://127.0.0.1:9/hook"}
    made = patient.post(f"{campus.url}/v1/recorder/monitors", json=body, headers=headers)
    monitor = f"/recorder/{made.raise_for_status().json()['monitor_id']}"
    free = patient.post(f"{campus.url}/v1/recorder/monitors", json={**body, "alert_webhook": "http://127.0.0.1:9/free"})
    free_page = free.raise_for_status().json()["page_url"].removeprefix(campus.url)
    faults: list[str] = []
    read = 0
    with open_browser() as browser:
        for context, paths in _contexts(browser, campus, [*WITH_KEY, monitor, free_page]):
            for path in paths:
                found = _violations(context, f"{campus.url}{path}", axe)
                read += 1
                faults += [f"accessibility: {path}: {rule}: {html[:200]}" for rule, html in found]
            context.close()
        for context in _operators(browser, campus):
            for path in OF_OPERATOR:
                found = _violations(context, f"{campus.served.admin}{path}", axe)
                read += 1
                faults += [f"accessibility: the operator's {path}: {rule}: {html[:200]}" for rule, html in found]
            context.close()
    print(f"\naxe-core read {read} pages, each of them light or dark, narrow or wide")
    return list(dict.fromkeys(faults))


def _contexts(browser: Browser, campus: ServedCampus, with_key: Sequence[str]) -> Iterator[tuple[BrowserContext, Sequence[str]]]:
    for scheme in ("light", "dark"):
        for viewport in (NARROW, WIDE):
            # the policy of the pages would block axe-core too, which is put into them as a script
            options = {"viewport": viewport, "color_scheme": scheme, "bypass_csp": True}
            yield browser.new_context(**options), FOR_ALL  # type: ignore[arg-type]
            signed_in = browser.new_context(**options)  # type: ignore[arg-type]
            page = signed_in.new_page()
            page.goto(f"{campus.url}/keys")
            page.locator("#field-key").fill(campus.tokens.campus_pass)
            page.get_by_role("button", name="Sign in").click()
            page.close()
            yield signed_in, with_key


def _operators(browser: Browser, campus: ServedCampus) -> Iterator[BrowserContext]:
    for scheme in ("light", "dark"):
        for viewport in (NARROW, WIDE):
            context = browser.new_context(viewport=viewport, color_scheme=scheme, bypass_csp=True)  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(f"{campus.served.admin}/sign-in")
            page.locator("#field-password").fill(OPERATOR_PASSWORD)
            page.get_by_role("button", name="Sign in").click()
            page.close()
            yield context


def _violations(context: BrowserContext, url: str, axe: str) -> list[Found]:
    page = context.new_page()
    page.goto(url)
    page.evaluate(axe)
    found: list[Found] = page.evaluate(RUN)
    page.close()
    return found
