"""Who sells here, for the plan and for all pages."""

from collections.abc import Mapping, Sequence

from campus.building import Building
from campus.catalog.parts import PlanPart
from campus.catalog.server import OpenBuilding
from campus.config import Config
from campus.directory import SellerEntry
from campus.errors import ConfigError
from campus.features.seller.feature import SellerTable


class SellerPlan(PlanPart):
    """The seller's entry; ConfigError for a file that is not there."""

    def __init__(self, config: Config, settings: SellerTable, opened: Sequence[OpenBuilding]) -> None:
        for key, file in _files(settings).items():
            if not (config.folder / file).is_file():
                raise ConfigError(f"[seller] {key}: there is no file {config.folder / file}")
        self.sold_by = SellerEntry(
            name=settings.name or config.server.name,
            address=settings.address,
            contact=settings.contact,
            pages={"Seller": "/seller", **{key.title(): f"/{key}" for key in _files(settings)}},
        )


def _files(settings: SellerTable) -> Mapping[str, str]:
    """The files that are given, by the names of their pages."""
    named = {"terms": settings.terms, "privacy": settings.privacy, "refunds": settings.refunds}
    return {key: file for key, file in named.items() if file is not None}


building = Building(plans=SellerPlan)
