"""What every building imports. Each further subject has a module of its own, such as campus.storage or campus.testing.

Its names are imported at their first use: FastMCP takes a second to import, and most of the operator's commands do without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from campus.api import *  # noqa: F403  # that module lists them once
    from campus.api import __all__ as __all__


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("campus.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module("campus.api").__all__})
