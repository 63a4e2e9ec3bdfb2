"""What can be bought: a key of a scope for a term."""

from dataclasses import dataclass

from campus.keys.term import Term


@dataclass(frozen=True, slots=True)
class Product:
    """One table [products.NAME] of campus.toml. `price` is US dollars, decimal; `url` a page where a person buys it."""

    name: str
    scope: str
    price: str
    term: Term
    url: str | None = None
