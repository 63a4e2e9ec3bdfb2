"""Who sells: the pages of [seller], and every place outside of pages that names the seller and the terms."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest

from buildings.checkout import building as checkout
from buildings.cve.building import building as cve
from buildings.gateway import building as gateway
from campus.errors import ConfigError
from campus.testing import TestCampus, open_campus

pytestmark = pytest.mark.anyio
NOBODY = "http://127.0.0.1:9"
PAYMENTS = {"network": "eip155:8453", "pay_to": "0x" + "1" * 40, "facilitators": [NOBODY], "rpc_url": NOBODY}
HTML = {"Accept": "text/html"}
JSON = {"Accept": "application/json"}
ADDRESS = "1 Example Street\n12345 <b>Example</b> City"
SELLER = {"name": "Example & Sons", "address": ADDRESS, "contact": "mailto:ada@shop.example"}
TERMS = "# Terms of sale\n\nOne <script>alert(1)</script> rule.\n\n[No link](javascript:alert(1)) and [a link](https://shop.example/x).\n"


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestCampus]:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "terms.md").write_text(TERMS)
    (folder / "privacy.md").write_text("We keep no names.\n")
    tables = {
        "folder": folder,
        "seller": {**SELLER, "terms": "terms.md", "privacy": "privacy.md"},
        "payments": PAYMENTS,
        "buildings": {"gateway": {"path": "/"}, "cve": {"sample": True}, "checkout": {"grants": ["keys"]}},
    }
    async with open_campus(gateway=gateway, cve=cve, checkout=checkout, tables=tables) as opened:
        yield opened


async def page(campus: TestCampus, path: str) -> str:
    response = await campus.http.get(path, headers=HTML)
    assert response.status_code == 200, path
    return response.text


async def test_the_seller_has_a_page_and_a_link_from_the_foot_of_every_page(shop: TestCampus) -> None:
    text = await page(shop, "/seller")
    assert "Example &amp; Sons</h1>" in text
    assert "1 Example Street<br>12345 &lt;b&gt;Example&lt;/b&gt; City" in text, "an address is text"
    foot = (await page(shop, "/")).partition("<footer")[2]
    assert all(f'<a href="{path}">' in foot for path in ("/seller", "/terms", "/privacy", "/refunds"))
    found = (await shop.http.get("/seller", headers=JSON)).json()
    assert found["seller"]["pages"] == {"Seller": "/seller", "Terms": "/terms", "Privacy": "/privacy", "Refunds": "/refunds"}
    assert "/terms</loc>" in (await shop.http.get("/sitemap.xml")).text


async def test_files_become_pages_in_which_html_and_scripts_are_text(shop: TestCampus) -> None:
    text = await page(shop, "/terms")
    assert '<h1 id="terms-of-sale">Terms of sale</h1>' in text
    assert "&lt;script&gt;alert(1)" in text
    assert 'href="javascript:' not in text
    assert '<a href="https://shop.example/x">a link</a>' in text
    assert "<h1>Privacy</h1>" in await page(shop, "/privacy"), "a file without a heading has the page's name"


async def test_without_a_file_the_page_of_refunds_says_that_sales_are_final_and_what_the_law_gives(shop: TestCampus) -> None:
    text = await page(shop, "/refunds")
    assert "Sales are final" in text
    assert "no seller can exclude" in text
    assert "paid by card" not in text, "no card is taken here"
    assert "paid from a wallet" in text


async def test_documents_and_answers_name_the_seller_and_the_terms(shop: TestCampus) -> None:
    info = (await shop.http.get("/v1/openapi.json")).json()["info"]
    assert info["contact"] == {"name": "Example & Sons", "email": "ada@shop.example"}
    assert info["termsOfService"] == f"{shop.site.url}/terms"
    assert (await shop.http.get("/openapi.json")).json()["info"]["contact"] == info["contact"]
    terms = (await shop.http.get("/.well-known/x402")).json()
    assert terms["seller"] == {"name": SELLER["name"], "address": ADDRESS, "contact": SELLER["contact"], "pages": terms["seller"]["pages"]}
    names = {one["building"]: one["serviceName"] for one in terms["terms"]}
    assert names == {"checkout": "Checkout by Example & Sons", "cve": "Daily CVE prioritization"}, "catalogs take 32 characters"
    key = {"Authorization": f"Bearer {await shop.key('cve')}"}
    assert (await shop.http.get("/keys/receipt", headers=JSON | key)).json()["seller"] == terms["seller"]
    sentence = f"Sold by Example & Sons ({shop.site.url}/seller, {shop.site.url}/terms, "
    for call in (await shop.call("about_service"), await shop.call("list_products", building="checkout")):
        assert sentence in call.data["terms"]
        assert "Sales are final." in call.data["terms"]


async def test_with_a_page_on_refunds_of_its_own_a_shop_says_nowhere_that_sales_are_final(tmp_path: Path) -> None:
    (tmp_path / "refunds.md").write_text("Within 14 days.")
    seller = {"name": "Ada", "refunds": "refunds.md"}
    product = {"scope": "all", "price": "19", "term": "30 days", "url": "https://shop.example"}
    async with open_campus(gateway=gateway, tables={"folder": tmp_path, "seller": seller, "products": {"pass": product}}) as campus:
        assert "What is refunded, the seller's page /refunds says. There are no" in (await campus.call("about_service")).data["terms"]
        for path in ("/pricing", "/pricing/pass", "/refunds", "/v1/gateway/about_service"):
            assert "ales are final" not in (text := await page(campus, path)), path
            assert "/refunds" in text


async def test_a_campus_without_a_seller_has_none_of_its_pages() -> None:
    async with open_campus(gateway=gateway) as campus:
        for path in ("/seller", "/terms", "/privacy", "/refunds"):
            assert (await campus.http.get(path)).status_code == 404
        assert "seller" not in (await campus.http.get("/.well-known/x402")).json()
        assert "Sold by" not in json.dumps((await campus.call("about_service")).data)


@pytest.mark.parametrize("content", [None, b"\xff"])
async def test_a_file_that_cannot_be_read_is_a_mistake_with_its_name(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "terms.md").write_bytes(content)
    tables: dict[str, Any] = {"folder": tmp_path, "seller": {"terms": "terms.md"}}
    with pytest.raises(ConfigError, match=r"\[seller\] terms = 'terms.md' cannot be read"):
        async with open_campus(gateway=gateway, tables=tables):
            pass
