"""Who sells here, for the plan and for all pages: /seller, and /terms, /privacy and /refunds from the operator's files."""

from collections.abc import Collection, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from campus.building import Building
from campus.catalog.parts import PlanPart
from campus.catalog.plan import Plan
from campus.catalog.server import OpenBuilding
from campus.config import Config
from campus.directory import SellerEntry
from campus.errors import ConfigError
from campus.features.seller.feature import SellerTable
from campus.http.service_routes import own_page
from campus.http_parts import HttpPart
from campus.layout.documents import Document, document_of
from twins import RouteEntry

TEXTS = ("terms", "privacy", "refunds")
"""The keys that name files; each is a page of the same name."""


class SellerPlan(PlanPart):
    """The seller's entry and documents; ConfigError for a file that cannot be read."""

    def __init__(self, config: Config, settings: SellerTable, opened: Sequence[OpenBuilding]) -> None:
        files = {name: file for name in TEXTS if (file := getattr(settings, name)) is not None}
        self.documents_by_name = {name: self._read(config, name, file) for name, file in files.items()}
        sells = bool(config.products) or config.sells_calls
        self.sold_by = SellerEntry(
            name=settings.name or config.server.name,
            address=settings.address,
            contact=settings.contact,
            is_final="refunds" not in files,
            pages={"Seller": "/seller"} | {name.title(): f"/{name}" for name in TEXTS if name in files or (name == "refunds" and sells)},
        )

    def _read(self, config: Config, name: str, file: str) -> Document:
        try:
            return document_of((config.folder / file).read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigError(f"[seller] {name} = {file!r} cannot be read as text: {why}, at {config.folder / file}") from None


class SellerPages(HttpPart):
    def routes(self, plan: Plan, servers: Mapping[str, ASGIApp]) -> Collection[RouteEntry]:
        pages = plan.sold_by.pages.values() if plan.sold_by else ()
        return [own_page(["GET"], path, self.seller if path == "/seller" else self.show) for path in pages]

    async def seller(self, request: Request) -> Response:
        sold_by = self.directory.sold_by
        return self.pages.page("seller.html", request, data={"ok": True, "seller": sold_by}, sold_by=sold_by)

    async def show(self, request: Request) -> Response:
        name = request.url.path.removeprefix("/")
        part = self.campus.plan.parts["seller"]
        assert isinstance(part, SellerPlan)
        found = part.documents_by_name.get(name)
        if found is None:
            return self.pages.page("refunds.html", request, payment=self.directory.payment)
        return self.pages.page("text.html", request, title=found.title or name.title(), has_title=bool(found.title), html=found.html)


building = Building(plans=SellerPlan, http=SellerPages)
