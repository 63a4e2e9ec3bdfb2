"""[seller] of campus.toml."""

from typing import Annotated

from pydantic import AfterValidator, Field

from campus.addresses import read_contact
from campus.feature import Feature, Settings

PATHS = ("/seller", "/terms", "/privacy", "/refunds")


class SellerTable(Settings):
    """[seller]: who offers the service. It stands on /seller, in the footer, on receipts, in e-mails and in the terms of payment."""

    name: str | None = Field(default=None, min_length=1, max_length=100)
    """The person or company that buyers deal with; default: the service's name."""
    address: str | None = Field(default=None, min_length=1, max_length=500)
    """Its postal address; a line each with \\n between."""
    contact: Annotated[str, AfterValidator(read_contact)] | None = None
    """Where people write to you, such as mailto:…: pages name it, and /.well-known/security.txt for reports of vulnerabilities."""
    terms: str | None = Field(default=None, pattern=r"\.md$", examples=["terms.md"])
    """A Markdown file beside campus.toml, served as /terms."""
    privacy: str | None = Field(default=None, pattern=r"\.md$", examples=["privacy.md"])
    """The same for /privacy."""
    refunds: str | None = Field(default=None, pattern=r"\.md$", examples=["refunds.md"])
    """The same for /refunds. Without it, where something is sold, the page says that sales are final, and what the law allows."""


feature = Feature("campus.features.seller.pages:building", settings=SellerTable, paths=PATHS)
