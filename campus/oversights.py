"""What `campus check` finds in campus.toml that starts and is probably not meant."""

from collections.abc import Sequence

from campus.access import access_of
from campus.catalog.server import OpenBuilding
from campus.config import Config


def unsold(config: Config, *, sells: bool) -> Sequence[str]:
    """Products of a public service that callers are told no place to buy; `sells` says whether a building sells them."""
    nowhere = [name for name, product in config.products.items() if product.url is None]
    if sells or config.server.public_url is None or not nowhere:
        return []
    tables = ", ".join(f"[products.{name}]" for name in nowhere)
    return [
        f'callers who need a key are told no place to buy {", ".join(nowhere)}; set url = "https://…" in {tables},'
        " or open [buildings.checkout]"
    ]


def free_writes(opened: OpenBuilding) -> Sequence[str]:
    """Tools that may change something and are free because nobody said a price, nor that they are free."""
    writing = [
        name
        for name, tool in sorted(opened.tools.items())
        if access_of(tool.meta) is None and not (tool.annotations and tool.annotations.read_only_hint)
    ]
    if not writing:
        return []
    return [
        f"anyone may call {', '.join(writing)} for free: they are not annotated read-only, and nothing names a price;"
        f" give them one in [buildings.{opened.name}.tools], or write free = true"
    ]
