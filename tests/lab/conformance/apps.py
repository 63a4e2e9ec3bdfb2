"""The apps of the recorder and of the daily list in Chromium, opened by the host that the protocol's SDK for MCP Apps provides."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

from clients.recording import QuietServer
from contract.served_campus import ServedCampus
from lab.conformance.node import Node
from pages.browsers import NARROW, WIDE, open_browser, open_page, sideways
from playwright.sync_api import Page, expect

from tests import patient

PACKAGES = (
    "@modelcontextprotocol/ext-apps@2.0.4",
    "@modelcontextprotocol/client@2.4.0",
    "@modelcontextprotocol/core@2.4.0",
    "zod@4",
    "esbuild@0.25.12",
)
SCRIPT = Path(__file__).with_name("host_of_apps.mjs")
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
    " media-src 'self' data:; connect-src 'none'"
)
"""What the protocol lets an app do that names no addresses."""
HOSTILE = '<img src=x onerror="parent.location=`/stolen`"><b>nightly</b>'


def open_apps(node: Node, campus: ServedCampus) -> list[str]:
    script = node.folder / SCRIPT.name
    script.write_text(SCRIPT.read_text())
    bundle = node.folder / "host.js"
    esbuild = node.folder / "node_modules" / ".bin" / "esbuild"
    command = [esbuild, script, "--bundle", "--format=iife", f"--outfile={bundle}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if ran.returncode:
        return [f"apps: the host is not bundled: {ran.stderr}"]
    headers = {"Authorization": f"Bearer {campus.tokens.campus_pass}"}
    for name in (HOSTILE, "weekly report"):
        patient.post(
            f"{campus.url}/v1/recorder/monitors", json={"name": name, "alert_webhook": "http://127.0.0.1:9/hook"}, headers=headers
        ).raise_for_status()
    faults: list[str] = []
    with open_browser() as browser, _hosting(node.folder) as host:
        for viewport, theme in ((NARROW, "dark"), (WIDE, "light")):
            for check in (_fleet, _list, _refused):
                with open_page(browser, viewport=viewport) as page:
                    page.goto(host)
                    try:
                        check(page, campus, theme)
                        assert sideways(page) == 0, "the frame is wider than the window"
                    except Exception as error:
                        faults.append(f"apps: {check.__name__.strip('_')} at {viewport['width']} px: {error}")
    return faults


@contextmanager
def _hosting(folder: Path) -> Iterator[str]:
    (folder / "host.html").write_text('<!doctype html><body><script src="host.js"></script>')
    with QuietServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/host.html"
        server.shutdown()


def _open(page: Page, url: str, key: str | None, tool: str, theme: str, **args: Any) -> Any:
    given = {"url": url, "key": key, "tool": tool, "args": args, "policy": POLICY, "theme": theme}
    return page.evaluate("(given) => openApp(given)", given)


def _fleet(page: Page, campus: ServedCampus, theme: str) -> None:
    _open(page, f"{campus.url}/recorder/mcp", campus.tokens.campus_pass, "fleet_status", theme, limit=1)
    app = page.frame_locator("iframe")
    expect(app.get_by_role("heading", name="Fleet")).to_be_visible()
    expect(app.locator("html")).to_have_attribute("data-theme", theme)
    expect(app.locator("tbody tr")).to_have_count(1)
    first = app.locator("tbody code").inner_text()
    app.get_by_role("button", name="Next page").click()
    expect(app.locator("tbody code")).not_to_have_text(first)
    result = _open(page, f"{campus.url}/recorder/mcp", campus.tokens.campus_pass, "fleet_status", theme)
    expect(app.locator("tbody tr")).to_have_count(len(result["structuredContent"]["monitors"]))
    expect(app.get_by_text(HOSTILE).first).to_be_visible()  # its name as text
    app.get_by_role("searchbox").fill("weekly")
    expect(app.locator("tbody tr:visible td:nth-child(2)").first).to_contain_text("weekly report")
    expect(app.get_by_text(HOSTILE).first).to_be_hidden()


def _list(page: Page, campus: ServedCampus, theme: str) -> None:
    result = _open(page, f"{campus.url}/cve/mcp", campus.tokens.campus_pass, "top_cves_today", theme)
    app = page.frame_locator("iframe")
    expect(app.locator("tbody tr")).to_have_count(25)
    first = result["structuredContent"]["entries"][0]["cve_id"]
    app.get_by_role("button", name=first).click()
    page.wait_for_function("opened.length === 1")
    assert page.evaluate("opened[0]").endswith(first)
    app.get_by_role("searchbox").fill(first)
    expect(app.locator("tbody tr:visible")).to_have_count(1)


def _refused(page: Page, campus: ServedCampus, theme: str) -> None:
    _open(page, f"{campus.url}/cve/mcp", None, "top_cves_today", theme)
    expect(page.frame_locator("iframe").get_by_role("status")).to_contain_text("key")
